/* Feeds mutated record batches to the native decoder and the native validation, and checks what comes out.
 *
 * Built with -fsanitize=address,undefined: every buffer has exactly the size the decoder was promised, so a
 * single byte too far ends the run. Usage: decoder_harness SECONDS SEED CORPUS_FILE...
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../../tiered/formats/_decode.c"

static uint64_t state;

static uint64_t next(void) { /* splitmix64 */
  uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static int64_t below(int64_t n) { return n > 0 ? (int64_t)(next() % (uint64_t)n) : 0; }

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "broken: %s\n", what);
  abort();
}

static const uint8_t interesting[] = {0x00, 0x01, 0x02, 0x7f, 0x80, 0x81, 0xfe, 0xff, 0x0f, 0x10, 0x2a, 0x2b, 0xc0, 0xed};

static int64_t mutate(uint8_t *bytes, int64_t length) {
  for (int64_t times = below(6); times > 0 && length > 0; times--) {
    int64_t at = below(4) ? below(length) : below(length < 80 ? length : 80);
    switch (below(6)) {
      case 0: bytes[at] ^= (uint8_t)(1u << below(8)); break;
      case 1: bytes[at] = interesting[below((int64_t)sizeof interesting)]; break;
      case 2: bytes[at] = (uint8_t)next(); break;
      case 3: length = length - below(length < 40 ? length : 40); break;
      case 4: { /* a run of continuation bytes: long varints */
        for (int64_t i = at; i < length && i < at + 10; i++) bytes[i] = (uint8_t)(0x80 | next());
        break;
      }
      default: { /* one piece over another */
        int64_t from = below(length), n = below(16);
        if (from + n <= length && at + n <= length) memmove(bytes + at, bytes + from, (size_t)n);
      }
    }
  }
  return length;
}

static int32_t *ends(int64_t n) {
  int32_t *array = malloc((size_t)(n + 1) * sizeof *array);
  array[0] = 0;
  return array;
}

static void check_ends(const int32_t *array, int64_t rows, int64_t bytes, const char *what) {
  for (int64_t i = 0; i < rows; i++) require(array[i] <= array[i + 1], what);
  require(array[rows] == bytes, what);
}

/* One call as arrow.py makes it. The number of rows, or -1 when the bytes were refused. */
static int64_t decode_once(const tiered_batch *batches, int64_t count) {
  int64_t total = 0, capacity = 0, failed;
  for (int64_t i = 0; i < count; i++) {
    int64_t most = batches[i].payload_bytes / MIN_RECORD_BYTES;
    total += batches[i].payload_bytes;
    capacity += batches[i].record_count < most ? batches[i].record_count : most;
  }
  if (below(8) == 0) capacity = below(capacity + 1);
  int64_t data = below(8) ? total : below(total + 1), entries = below(8) ? total / 2 : below(total / 2 + 1);
  tiered_columns out;
  memset(&out, 0, sizeof out);
  out.rows_capacity = capacity;
  out.data_capacity = out.header_data_capacity = data;
  out.header_rows_capacity = entries;
  out.offsets = malloc((size_t)capacity * 8 + 1);
  out.timestamps_us = malloc((size_t)capacity * 8 + 1);
  out.timestamp_types = malloc((size_t)capacity * 4 + 1);
  out.want_key = (int32_t)below(2), out.want_value = (int32_t)below(2), out.want_headers = (int32_t)below(4) > 0;
  if (out.want_key)
    out.key_ends = ends(capacity), out.key_data = malloc((size_t)data + COPY_BYTES),
    out.key_validity = calloc((size_t)capacity / 8 + 1, 1);
  if (out.want_value)
    out.value_ends = ends(capacity), out.value_data = malloc((size_t)data + COPY_BYTES),
    out.value_validity = calloc((size_t)capacity / 8 + 1, 1);
  if (out.want_headers) {
    out.header_list_ends = ends(capacity), out.header_list_validity = calloc((size_t)capacity / 8 + 1, 1);
    out.header_key_ends = ends(entries), out.header_key_data = malloc((size_t)data + COPY_BYTES);
    out.header_value_ends = ends(entries), out.header_value_data = malloc((size_t)data + COPY_BYTES);
    out.header_value_validity = calloc((size_t)entries / 8 + 1, 1);
  }
  int64_t start = below(3) ? 0 : below(1000), end = below(3) ? INT64_MAX : start + below(1000);
  int64_t rows = -1;
  if (tiered_decode(batches, count, start, end, &out, &failed) == OK) {
    rows = out.rows;
    require(rows <= capacity, "more rows than there is room for");
    for (int64_t i = 0; i < rows; i++) require(out.offsets[i] >= start && out.offsets[i] < end, "offset out of range");
    if (out.want_key) check_ends(out.key_ends, rows, out.key_bytes, "key ends");
    if (out.want_value) check_ends(out.value_ends, rows, out.value_bytes, "value ends");
    if (out.want_headers) {
      check_ends(out.header_list_ends, rows, out.header_rows, "header list ends");
      check_ends(out.header_key_ends, out.header_rows, out.header_key_bytes, "header key ends");
      check_ends(out.header_value_ends, out.header_rows, out.header_value_bytes, "header value ends");
    }
  }
  free(out.offsets), free(out.timestamps_us), free(out.timestamp_types);
  free(out.key_ends), free(out.key_data), free(out.key_validity);
  free(out.value_ends), free(out.value_data), free(out.value_validity);
  free(out.header_list_ends), free(out.header_list_validity), free(out.header_key_ends), free(out.header_key_data);
  free(out.header_value_ends), free(out.header_value_data), free(out.header_value_validity);
  return rows;
}

static void put32(uint8_t *p, uint32_t value) {
  for (int i = 0; i < 4; i++) p[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* One batch as batch_validation.py has it validated, mostly with the right length and CRC so that its records are read.
 * What it takes, the decoder must take, too. 1 when it was taken. */
static int validate_once(const uint8_t *from, int64_t length) {
  uint8_t *bytes = malloc((size_t)length + 1);
  memcpy(bytes, from, (size_t)length);
  if (length >= HEADER_BYTES && below(16)) {
    put32(bytes + 8, (uint32_t)(length - 12));
    if (below(8)) bytes[16] = 2, bytes[21] = 0, bytes[22] &= 0x10;
    if (below(4)) put32(bytes + 23, be32(bytes + 57) - 1);
    put32(bytes + 17, tiered_crc32c(bytes + 21, length - 21, 0));
  }
  uint8_t *exact = malloc((size_t)length);
  memcpy(exact, bytes, (size_t)length);
  free(bytes);
  tiered_limits limits = {below(2) ? INT64_MAX : below(2000), below(2) ? INT64_MAX : below(100), below(2) ? INT64_MAX : below(1000),
                          below(2) ? INT64_MAX : below(1000), below(4)};
  tiered_verdict verdict;
  const int64_t now_ms = below(2) ? 1700000000000 : INT64_MAX - below(3);
  int answer = tiered_validate(exact, length, now_ms, &limits, &verdict);
  require(answer >= VALID_SO_FAR && answer <= REFUSED_RECORDS, "an answer that is none");
  if (answer == REFUSED_RECORDS) {
    int64_t capacity = below(4), counted = verdict.refused_records;
    tiered_refused_record *refused = malloc((size_t)capacity * sizeof *refused + 1);
    require(counted > 0 && counted <= verdict.record_count, "refused records");
    require(tiered_validate_records(exact + HEADER_BYTES, length - HEADER_BYTES, now_ms, &limits, &verdict, refused,
                                    capacity) == REFUSED_RECORDS && verdict.refused_records == counted,
            "the second look says the same");
    for (int64_t i = 0; i < counted && i < capacity; i++)
      require(refused[i].record >= (i ? refused[i - 1].record + 1 : 0) && refused[i].record < verdict.record_count,
              "places of refused records");
    free(refused);
  }
  if (answer == VALID || answer == VALID_WITH_OTHER_TIME) {
    tiered_batch batch;
    int64_t used;
    require(verdict.record == verdict.record_count, "every record was read");
    if (verdict.base_offset >= 0 && verdict.base_offset <= INT64_MAX - verdict.last_offset_delta - 1) {
      require(tiered_scan(exact, length, 1, &batch, 1, &used) == 1, "the header of a valid batch is one");
      require(decode_once(&batch, 1) >= -1, "rows");
    }
  }
  free(exact);
  return answer <= 0;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const double seconds = atof(argv[1]);
  state = strtoull(argv[2], 0, 10);
  const time_t began = time(0);
  int64_t runs = 0, accepted = 0, refused = 0, rows = 0, valid = 0, invalid = 0;
  while (runs % 256 != 0 || difftime(time(0), began) < seconds) {
    FILE *file = fopen(argv[3 + below(argc - 3)], "rb");
    require(file != 0, "cannot open a corpus file");
    fseek(file, 0, SEEK_END);
    int64_t length = ftell(file);
    rewind(file);
    uint8_t *seed = malloc((size_t)length + 1);
    require(fread(seed, 1, (size_t)length, file) == (size_t)length, "cannot read a corpus file");
    fclose(file);
    for (int inner = 0; inner < 64; inner++, runs++) {
      uint8_t *bytes = malloc((size_t)length + 1);
      memcpy(bytes, seed, (size_t)length);
      int64_t left = mutate(bytes, length), used = 0;
      uint8_t *exact = malloc((size_t)left); /* so that the byte after the last one is nobody's */
      memcpy(exact, bytes, (size_t)left);
      free(bytes);
      tiered_batch batches[64];
      int64_t count = tiered_scan(exact, left, below(16) == 0, batches, 1 + below(64), &used);
      require(used >= 0 && used <= left, "used");
      int64_t first = left < 12 ? left : (int64_t)be32(exact + 8) + 12; /* the first batch alone, where that is one */
      if (validate_once(exact, first < left ? first : left))
        valid++;
      else
        invalid++;
      if (below(32) == 0)
        require(tiered_crc32c(exact, left, 0) == tiered_crc32c(exact, left, 1), "both ways to a CRC agree");
      if (count < 0) {
        refused++;
      } else {
        /* As the caller does for compressed batches: the payload somewhere else, and mutated on its own. */
        uint8_t *elsewhere = 0;
        if (count > 0 && below(4) == 0) {
          int64_t which = below(count), size = batches[which].payload_bytes;
          elsewhere = malloc((size_t)size + 1);
          memcpy(elsewhere, batches[which].payload, (size_t)size);
          batches[which].payload_bytes = mutate(elsewhere, size);
          batches[which].payload = elsewhere;
        }
        int64_t got = decode_once(batches, count);
        if (got < 0) refused++;
        else accepted++, rows += got;
        free(elsewhere);
      }
      free(exact);
    }
    free(seed);
  }
  printf("runs=%lld accepted=%lld refused=%lld rows=%lld valid=%lld invalid=%lld\n", (long long)runs,
         (long long)accepted, (long long)refused, (long long)rows, (long long)valid, (long long)invalid);
  return accepted > 0 && refused > 0 && valid > 0 && invalid > 0 ? 0 : 1;
}
