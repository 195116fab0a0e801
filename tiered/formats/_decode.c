/* Kafka record batches (format version 2): validated on their way in, and decoded to Arrow column buffers.
 *
 * Owns the loops of this project that read every record. Plain C without Python.h: ctypes loads it, and
 * `tiered.formats.batch_validation` and `record_batch` take over where it is missing. Both accept and refuse the
 * same bytes.
 *
 * It reads hostile bytes. Rules that keep it safe:
 *  - every read is preceded by a comparison of what is left with what is wanted, never of pointers past an end;
 *  - every count is bounded by the bytes that are left before anything is done with it;
 *  - every write is preceded by a comparison with the capacity the caller gave;
 *  - it allocates nothing, keeps no state between calls and may run in several threads.
 * It must never repair anything: the first byte out of place refuses the whole call.
 */
#include <limits.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define API __attribute__((visibility("default")))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Raised with every change of a struct or a meaning below; native.py refuses another one. */
#define ABI_VERSION 2

enum {
  HEADER_BYTES = 61,
  MIN_BATCH_LENGTH = 49,  /* HEADER_BYTES less the 12 bytes before the length counts */
  MIN_RECORD_BYTES = 7,   /* length, attributes, two deltas, key length, value length, header count */
  COPY_BYTES = 32,        /* spare bytes that every data buffer has behind its capacity */
  ATTRIBUTE_CODEC = 7,
  ATTRIBUTE_LOG_APPEND_TIME = 1 << 3,
  ATTRIBUTE_TRANSACTIONAL = 1 << 4,
  ATTRIBUTE_CONTROL = 1 << 5,
  ATTRIBUTE_DELETE_HORIZON = 1 << 6,
  CODEC_ZSTD = 4
};

/* Answers of tiered_scan (as negative numbers) and tiered_decode. native.py has the words. */
enum {
  OK = 0,
  BAD_HEADER = 1,
  BAD_CRC = 2,
  BAD_RECORD = 3,
  BAD_COUNT = 4,
  TOO_LARGE = 5,
  NO_ROOM = 6,
  NOT_TEXT = 7 /* a header's key is not UTF-8: allowed, but no Arrow string holds it as it is */
};

typedef struct {
  int64_t position, size_bytes, base_offset, attributes, base_timestamp_ms, max_timestamp_ms;
  int64_t last_offset_delta, record_count, producer_id;
  int64_t skip;            /* not 0: the caller wants none of its records */
  const uint8_t *payload;  /* the records, decompressed by the caller where need be */
  int64_t payload_bytes;
} tiered_batch;

typedef struct {
  int64_t rows, rows_capacity;
  int64_t key_bytes, value_bytes, data_capacity;
  int64_t header_rows, header_rows_capacity, header_key_bytes, header_value_bytes, header_data_capacity;
  int64_t key_nulls, value_nulls, header_list_nulls, header_value_nulls;
  int64_t *offsets, *timestamps_us;
  int32_t *timestamp_types;
  int32_t *key_ends;      /* rows + 1 entries, the first is 0; so are all below */
  uint8_t *key_data, *key_validity;
  int32_t *value_ends;
  uint8_t *value_data, *value_validity;
  int32_t *header_list_ends;
  uint8_t *header_list_validity;
  int32_t *header_key_ends;
  uint8_t *header_key_data;
  int32_t *header_value_ends;
  uint8_t *header_value_data, *header_value_validity;
  int32_t want_key, want_value, want_headers, reserved;
} tiered_columns;

/* ---- numbers ---- */

static inline uint32_t be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | (uint32_t)p[3];
}

static inline int64_t be64(const uint8_t *p) {
  return (int64_t)((uint64_t)be32(p) << 32 | be32(p + 4));
}

/* The zigzag number at p, at most 64 bits in at most 10 bytes; the byte after it, or NULL when there is none. */
static inline const uint8_t *varint(const uint8_t *p, const uint8_t *end, int64_t *value) {
  if (LIKELY(p < end && p[0] < 0x80)) {
    *value = (int64_t)(p[0] >> 1) ^ -(int64_t)(p[0] & 1);
    return p + 1;
  }
  uint64_t raw = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (UNLIKELY(p >= end)) return 0;
    uint64_t byte = *p++;
    if (UNLIKELY(shift == 63 && byte > 1)) return 0;
    raw |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
      return p;
    }
  }
  return 0;
}

/* Milliseconds to microseconds. What no timestamp can hold becomes the last one that can. */
static inline int64_t to_us(int64_t ms) {
  const int64_t most = INT64_MAX / 1000;
  if (UNLIKELY(ms > most)) ms = most;
  if (UNLIKELY(ms < -most)) ms = -most;
  return ms * 1000;
}

/* ---- CRC-32C ---- */

/* The instruction takes three cycles, and another may begin in each: three lanes of a buffer go side by side. */
#define LANE 1024

static uint32_t crc_table[8][256];
static uint32_t lane_table[4][256]; /* What LANE zero bytes make of a CRC, by each of its bytes. */

__attribute__((constructor)) static void make_crc_table(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0);
    crc_table[0][i] = crc;
  }
  for (int i = 0; i < 256; i++)
    for (int k = 1; k < 8; k++) crc_table[k][i] = (crc_table[k - 1][i] >> 8) ^ crc_table[0][crc_table[k - 1][i] & 255];
  for (int bit = 0; bit < 32; bit++) {
    uint32_t crc = 1u << bit;
    for (int byte = 0; byte < LANE; byte++) crc = (crc >> 8) ^ crc_table[0][crc & 255];
    for (int i = 0; i < 256; i++)
      if (i >> (bit & 7) & 1) lane_table[bit >> 3][i] ^= crc;
  }
}

static inline uint64_t after_lane(uint64_t crc) {
  return lane_table[0][crc & 255] ^ lane_table[1][crc >> 8 & 255] ^ lane_table[2][crc >> 16 & 255] ^
         lane_table[3][crc >> 24 & 255];
}

static inline uint64_t word_at(const uint8_t *p) {
  uint64_t word;
  memcpy(&word, p, 8);
  return word;
}

static uint32_t crc_software(const uint8_t *p, int64_t n) {
  uint32_t crc = ~0u;
  for (; n >= 8; p += 8, n -= 8) {
    uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
    crc = crc_table[7][low & 255] ^ crc_table[6][(low >> 8) & 255] ^ crc_table[5][(low >> 16) & 255] ^
          crc_table[4][low >> 24] ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
  }
  while (n-- > 0) crc = (crc >> 8) ^ crc_table[0][(crc ^ *p++) & 255];
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_hardware(const uint8_t *p, int64_t n) {
  uint64_t crc = 0xffffffffu;
  for (; n >= 3 * LANE; p += 3 * LANE, n -= 3 * LANE) {
    uint64_t second = 0, third = 0;
    for (int i = 0; i < LANE; i += 8) {
      crc = _mm_crc32_u64(crc, word_at(p + i));
      second = _mm_crc32_u64(second, word_at(p + LANE + i));
      third = _mm_crc32_u64(third, word_at(p + 2 * LANE + i));
    }
    crc = after_lane(after_lane(crc) ^ second) ^ third;
  }
  for (; n >= 8; p += 8, n -= 8) crc = _mm_crc32_u64(crc, word_at(p));
  uint32_t rest = (uint32_t)crc;
  while (n-- > 0) rest = _mm_crc32_u8(rest, *p++);
  return ~rest;
}
static int has_hardware(void) { return __builtin_cpu_supports("sse4.2"); }
#elif defined(__aarch64__) && defined(__linux__)
/* As assembly, because compilers disagree on how a function asks for the extension. */
static uint32_t crc_hardware(const uint8_t *p, int64_t n) {
  uint32_t crc = ~0u;
  for (; n >= 8; p += 8, n -= 8) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word_at(p)));
  }
  while (n-- > 0) {
    uint32_t byte = *p++;
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
  }
  return ~crc;
}
static int has_hardware(void) { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
#else
static uint32_t crc_hardware(const uint8_t *p, int64_t n) { return crc_software(p, n); }
static int has_hardware(void) { return 0; }
#endif

/* The CRC-32C (Castagnoli) of n bytes. `software` not 0 keeps the processor's instruction out, for the tests. */
API uint32_t tiered_crc32c(const uint8_t *p, int64_t n, int software) {
  return (!software && has_hardware()) ? crc_hardware(p, n) : crc_software(p, n);
}

API int tiered_abi_version(void) { return ABI_VERSION; }

/* ---- batches ---- */

/* Fills `out` with up to `capacity` whole batches; answers with their number and how many bytes they take.
 * A partial batch at the end is left alone: `*used` says where it begins. A bad batch gives the negative
 * reason, with `*used` its position. Payloads still point at the bytes as they are, compressed or not. */
API int64_t tiered_scan(const uint8_t *bytes, int64_t length, int check_crc, tiered_batch *out, int64_t capacity,
                        int64_t *used) {
  int64_t position = 0, n = 0;
  while (n < capacity && length - position >= HEADER_BYTES) {
    const uint8_t *p = bytes + position;
    *used = position;
    int64_t batch_length = (int32_t)be32(p + 8);
    if (batch_length < MIN_BATCH_LENGTH || p[16] != 2) return -BAD_HEADER;
    int64_t size = batch_length + 12;
    if (size > length - position) break;
    if (check_crc && be32(p + 17) != tiered_crc32c(p + 21, size - 21, 0)) return -BAD_CRC;
    tiered_batch *batch = out + n++;
    batch->position = position;
    batch->size_bytes = size;
    batch->base_offset = be64(p);
    batch->attributes = (int64_t)p[21] << 8 | p[22];
    batch->last_offset_delta = (int32_t)be32(p + 23);
    batch->base_timestamp_ms = be64(p + 27);
    batch->max_timestamp_ms = be64(p + 35);
    batch->producer_id = be64(p + 43);
    batch->record_count = (int32_t)be32(p + 57);
    batch->skip = 0;
    batch->payload = p + HEADER_BYTES;
    batch->payload_bytes = size - HEADER_BYTES;
    if (batch->base_offset < 0 || batch->last_offset_delta < 0 || batch->record_count < 0 ||
        batch->base_offset > INT64_MAX - batch->last_offset_delta - 1)
      return -BAD_HEADER;
    position += size;
  }
  *used = position;
  return n;
}

/* ---- columns ---- */

static inline void set_bit(uint8_t *bits, int64_t i) { bits[i >> 3] |= (uint8_t)(1u << (i & 7)); }

/* n bytes from `from` to `to`, which has COPY_BYTES to spare: short ones go in one piece of fixed size. */
static inline void copy(uint8_t *to, const uint8_t *from, int64_t n, const uint8_t *source_end) {
  if (n <= COPY_BYTES && source_end - from >= COPY_BYTES)
    memcpy(to, from, COPY_BYTES);
  else if (n > 0)
    memcpy(to, from, (size_t)n);
}

/* 1 when the n bytes are UTF-8 as Python's strict decoder sees it: no surrogates, nothing overlong. */
static int is_utf8(const uint8_t *p, int64_t n) {
  int64_t i = 0;
  while (i < n) {
    uint8_t c = p[i];
    if (c < 0x80) {
      i++;
      continue;
    }
    int more;
    uint8_t low = 0x80, high = 0xBF;
    if (c >= 0xC2 && c <= 0xDF) {
      more = 1;
    } else if (c >= 0xE0 && c <= 0xEF) {
      more = 2;
      if (c == 0xE0) low = 0xA0;
      if (c == 0xED) high = 0x9F;
    } else if (c >= 0xF0 && c <= 0xF4) {
      more = 3;
      if (c == 0xF0) low = 0x90;
      if (c == 0xF4) high = 0x8F;
    } else {
      return 0;
    }
    if (n - i - 1 < more || p[i + 1] < low || p[i + 1] > high) return 0;
    for (int k = 2; k <= more; k++)
      if ((p[i + k] & 0xC0) != 0x80) return 0;
    i += more + 1;
  }
  return 1;
}

#define NUMBER(value)                                   \
  do {                                                  \
    p = varint(p, record_end, &(value));                 \
    if (UNLIKELY(!p)) return BAD_RECORD;                \
  } while (0)

/* A length of -1 (null) or more, and that many bytes from `start`. */
#define BYTES(start, length)                                                        \
  do {                                                                              \
    NUMBER( length);                                                         \
    if (UNLIKELY((length) < -1 || (length) > record_end - p)) return BAD_RECORD;    \
    (start) = p;                                                                    \
    if ((length) > 0) p += (length);                                                \
  } while (0)

/* Checks the headers of one record and, if `keep`, appends them. The place after them, or NULL and a reason. */
static const uint8_t *headers(const uint8_t *p, const uint8_t *record_end, const uint8_t *end, int keep,
                              tiered_columns *out, int *reason) {
  int64_t count, key_length, value_length;
  *reason = BAD_RECORD;
  p = varint(p, record_end, &count);
  if (!p || count < 0 || count > (record_end - p) / 2) return 0;
  for (int64_t i = 0; i < count; i++) {
    p = varint(p, record_end, &key_length);
    if (!p || key_length < 0 || key_length > record_end - p) return 0;
    const uint8_t *key = p;
    p += key_length;
    p = varint(p, record_end, &value_length);
    if (!p || value_length < -1 || value_length > record_end - p) return 0;
    const uint8_t *value = p;
    if (value_length > 0) p += value_length;
    if (!keep) continue;
    if (!is_utf8(key, key_length)) {
      *reason = NOT_TEXT;
      return 0;
    }
    int64_t row = out->header_rows;
    if (row >= out->header_rows_capacity || key_length > out->header_data_capacity - out->header_key_bytes ||
        value_length > out->header_data_capacity - out->header_value_bytes) {
      *reason = NO_ROOM;
      return 0;
    }
    copy(out->header_key_data + out->header_key_bytes, key, key_length, end);
    out->header_key_bytes += key_length;
    if (value_length >= 0) {
      set_bit(out->header_value_validity, row);
      copy(out->header_value_data + out->header_value_bytes, value, value_length, end);
      out->header_value_bytes += value_length;
    } else {
      out->header_value_nulls++;
    }
    out->header_key_ends[row + 1] = (int32_t)out->header_key_bytes;
    out->header_value_ends[row + 1] = (int32_t)out->header_value_bytes;
    out->header_rows = row + 1;
  }
  if (keep) {
    if (count > 0)
      set_bit(out->header_list_validity, out->rows);
    else
      out->header_list_nulls++;
    out->header_list_ends[out->rows + 1] = (int32_t)out->header_rows;
  }
  *reason = OK;
  return p;
}

static int decode_batch(const tiered_batch *batch, int64_t start_offset, int64_t end_offset, tiered_columns *out) {
  const uint8_t *p = batch->payload, *end = p + batch->payload_bytes;
  const int log_append_time = (batch->attributes & ATTRIBUTE_LOG_APPEND_TIME) != 0;
  int64_t previous_delta = -1;
  for (int64_t i = 0; i < batch->record_count; i++) {
    int64_t length, timestamp_delta, offset_delta, key_length, value_length;
    const uint8_t *key, *value, *record_end = end;
    NUMBER( length);
    if (UNLIKELY(length < MIN_RECORD_BYTES - 1 || length > end - p)) return BAD_RECORD;
    record_end = p + length;
    p++; /* attributes of a record: none are defined */
    NUMBER( timestamp_delta);
    NUMBER( offset_delta);
    if (UNLIKELY(offset_delta <= previous_delta || offset_delta > batch->last_offset_delta)) return BAD_RECORD;
    previous_delta = offset_delta;
    int64_t timestamp_ms = batch->max_timestamp_ms;
    if (!log_append_time && __builtin_add_overflow(batch->base_timestamp_ms, timestamp_delta, &timestamp_ms))
      return BAD_RECORD;
    BYTES(key, key_length);
    BYTES(value, value_length);

    const int64_t offset = batch->base_offset + offset_delta, row = out->rows;
    const int keep = offset >= start_offset && offset < end_offset;
    if (keep) {
      if (UNLIKELY(row >= out->rows_capacity)) return NO_ROOM;
      out->offsets[row] = offset;
      out->timestamps_us[row] = to_us(timestamp_ms);
      out->timestamp_types[row] = log_append_time;
      if (out->want_key) {
        if (LIKELY(key_length >= 0)) {
          if (UNLIKELY(key_length > out->data_capacity - out->key_bytes)) return NO_ROOM;
          set_bit(out->key_validity, row);
          copy(out->key_data + out->key_bytes, key, key_length, end);
          out->key_bytes += key_length;
        } else {
          out->key_nulls++;
        }
        out->key_ends[row + 1] = (int32_t)out->key_bytes;
      }
      if (out->want_value) {
        if (LIKELY(value_length >= 0)) {
          if (UNLIKELY(value_length > out->data_capacity - out->value_bytes)) return NO_ROOM;
          set_bit(out->value_validity, row);
          copy(out->value_data + out->value_bytes, value, value_length, end);
          out->value_bytes += value_length;
        } else {
          out->value_nulls++;
        }
        out->value_ends[row + 1] = (int32_t)out->value_bytes;
      }
    }
    if (LIKELY(p < record_end && *p == 0 && !(keep && out->want_headers))) {
      p++;
    } else {
      int reason;
      p = headers(p, record_end, end, keep && out->want_headers, out, &reason);
      if (UNLIKELY(!p)) return reason;
    }
    if (UNLIKELY(p != record_end)) return BAD_RECORD;
    out->rows += keep;
  }
  return p == end ? OK : BAD_RECORD;
}

/* Appends the records with start_offset <= offset < end_offset of `count` batches to the columns.
 *
 * Control batches, batches marked `skip` and batches wholly outside the range are passed over unread. On an
 * error `*failed` is the batch's index and the columns are to be thrown away. The caller keeps capacities
 * below 2 GiB (TOO_LARGE otherwise) and gives every data buffer COPY_BYTES more than its capacity, every
 * validity bitmap as zeros, every `ends` array one entry more than rows, with 0 first. */
API int tiered_decode(const tiered_batch *batches, int64_t count, int64_t start_offset, int64_t end_offset,
                      tiered_columns *out, int64_t *failed) {
  *failed = 0;
  if (out->data_capacity > INT32_MAX - COPY_BYTES || out->header_data_capacity > INT32_MAX - COPY_BYTES ||
      out->rows_capacity >= INT32_MAX || out->header_rows_capacity >= INT32_MAX)
    return TOO_LARGE;
  for (int64_t i = 0; i < count; i++) {
    const tiered_batch *batch = batches + i;
    *failed = i;
    if (batch->skip || (batch->attributes & ATTRIBUTE_CONTROL)) continue;
    if (batch->base_offset >= end_offset || batch->base_offset + batch->last_offset_delta < start_offset) continue;
    if (batch->payload_bytes < 0 || batch->record_count > batch->payload_bytes / MIN_RECORD_BYTES) return BAD_COUNT;
    int reason = decode_batch(batch, start_offset, end_offset, out);
    if (reason != OK) return reason;
  }
  return OK;
}

/* ---- validation of what a producer sends ---- */

/* Answers of tiered_validate and tiered_validate_records; `Reason` in batch_validation.py has the same numbers. */
enum {
  VALID_SO_FAR = -2, /* the records are compressed: tiered_validate_records has the rest to say */
  VALID_WITH_OTHER_TIME = -1, /* but the header's maximum timestamp is not that of the records */
  VALID = 0,
  REFUSED_SHORT = 1,
  REFUSED_MAGIC = 2,
  REFUSED_SIZE = 3,
  REFUSED_TOO_LARGE = 4,
  REFUSED_CRC = 5,
  REFUSED_BASE_OFFSET = 6,
  REFUSED_CONTROL = 7,
  REFUSED_DELETE_HORIZON = 8,
  REFUSED_TIMESTAMP_TYPE = 9,
  REFUSED_COUNT = 10,
  REFUSED_CODEC = 11,
  REFUSED_TRANSACTION = 12,
  REFUSED_SEQUENCE = 13,
  REFUSED_COMPRESSION = 14, /* only batch_validation.py finds that */
  REFUSED_FEW_RECORDS = 15,
  REFUSED_MANY_BYTES = 16,
  REFUSED_RECORD = 17,
  REFUSED_LARGE_RECORD = 18,
  REFUSED_OFFSET = 19,
  REFUSED_RECORDS = 20
};

enum { NEEDS_KEYS = 1, BROKER_SETS_TIME = 2 };
enum { NO_TIMESTAMP = -1 };

typedef struct {
  int64_t max_message_bytes, max_plain_record_bytes, before_max_ms, after_max_ms, flags;
} tiered_limits;

/* The header's fields, in the order of `BatchHeader`; then what the records say. */
typedef struct {
  int64_t base_offset, size_bytes, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp_ms;
  int64_t max_timestamp_ms, producer_id, producer_epoch, base_sequence, record_count;
  int64_t greatest_timestamp_ms; /* NO_TIMESTAMP when no record has a time */
  int64_t record;                /* the refused record: its place in the batch */
  int64_t refused_records;       /* how many records have no key or a time outside the bounds */
} tiered_verdict;

/* One record that is refused while its neighbours may be fine. */
typedef struct {
  int64_t record, has_no_key, timestamp_ms;
} tiered_refused_record;

static inline int64_t be16_signed(const uint8_t *p) { return (int16_t)((uint16_t)p[0] << 8 | p[1]); }

/* A varint of an int32, in at most 5 bytes as Kafka reads it; NULL where there is none. */
static inline const uint8_t *varint32(const uint8_t *p, const uint8_t *end, int64_t *value) {
  const uint8_t *after = varint(p, end, value);
  if (UNLIKELY(!after || after - p > 5 || *value > INT32_MAX || *value < INT32_MIN)) return 0;
  return after;
}

static inline int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return b < 0 ? INT64_MIN : INT64_MAX;
  return sum;
}

/* The place behind a nullable field, NULL where its length is wrong; `*length` is -1 for null. */
static inline const uint8_t *nullable(const uint8_t *p, const uint8_t *end, int64_t *length) {
  p = varint32(p, end, length);
  if (UNLIKELY(!p || *length < -1 || *length > end - p)) return 0;
  return *length > 0 ? p + *length : p;
}

static const uint8_t *skip_headers(const uint8_t *p, const uint8_t *end) {
  int64_t count, length;
  p = varint32(p, end, &count);
  if (!p || count < 0 || count > (end - p) / 2) return 0;
  for (int64_t i = 0; i < count; i++) {
    p = nullable(p, end, &length);
    if (!p || length < 0) return 0;
    p = nullable(p, end, &length);
    if (!p) return 0;
  }
  return p;
}

/* Reads every record of a batch whose header is in `verdict`; `body` is the records section, decompressed.
 *
 * The first `refused_capacity` records that have no key where the topic needs one, or a time outside the bounds, are
 * written to `refused`; the verdict counts all of them. */
API int tiered_validate_records(const uint8_t *body, int64_t body_bytes, int64_t now_ms, const tiered_limits *limits,
                                tiered_verdict *verdict, tiered_refused_record *refused, int64_t refused_capacity) {
  const uint8_t *p = body, *end = body + body_bytes;
  const int64_t count = verdict->record_count, base_ms = verdict->base_timestamp_ms;
  const int needs_keys = (limits->flags & NEEDS_KEYS) != 0, broker_sets_time = (limits->flags & BROKER_SETS_TIME) != 0;
  const int64_t earliest_ms = saturated_sum(now_ms, -limits->before_max_ms);
  const int64_t latest_ms = saturated_sum(now_ms, limits->after_max_ms);
  const int64_t max_record_bytes = verdict->attributes & ATTRIBUTE_CODEC ? limits->max_plain_record_bytes : INT64_MAX;
  int64_t greatest_ms = NO_TIMESTAMP;
  verdict->greatest_timestamp_ms = NO_TIMESTAMP;
  verdict->refused_records = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t length, timestamp_delta, offset_delta, key_length, value_length, timestamp_ms;
    verdict->record = i;
    if (UNLIKELY(p == end)) return REFUSED_FEW_RECORDS;
    p = varint32(p, end, &length);
    if (UNLIKELY(!p || length < MIN_RECORD_BYTES - 1 || length > end - p)) return REFUSED_RECORD;
    if (UNLIKELY(length > max_record_bytes)) return REFUSED_LARGE_RECORD;
    const uint8_t *record_end = p + length;
    p = varint(p + 1, record_end, &timestamp_delta); /* behind the record's attributes, of which none is defined */
    if (UNLIKELY(!p)) return REFUSED_RECORD;
    p = varint32(p, record_end, &offset_delta);
    if (UNLIKELY(!p)) return REFUSED_RECORD;
    p = nullable(p, record_end, &key_length);
    if (UNLIKELY(!p)) return REFUSED_RECORD;
    p = nullable(p, record_end, &value_length);
    if (UNLIKELY(!p)) return REFUSED_RECORD;
    if (LIKELY(p < record_end && *p == 0))
      p++;
    else
      p = skip_headers(p, record_end);
    if (UNLIKELY(p != record_end)) return REFUSED_RECORD;
    if (UNLIKELY(__builtin_add_overflow(base_ms, timestamp_delta, &timestamp_ms))) return REFUSED_RECORD;
    if (UNLIKELY(offset_delta != i)) return REFUSED_OFFSET;
    if (timestamp_ms > greatest_ms) greatest_ms = timestamp_ms;
    const int has_no_key = needs_keys && key_length < 0;
    const int is_out_of_time = !broker_sets_time && timestamp_ms != NO_TIMESTAMP &&
                               (timestamp_ms < earliest_ms || timestamp_ms > latest_ms);
    if (UNLIKELY(has_no_key || is_out_of_time)) {
      if (verdict->refused_records < refused_capacity) {
        tiered_refused_record *row = refused + verdict->refused_records;
        row->record = i;
        row->has_no_key = has_no_key;
        row->timestamp_ms = timestamp_ms;
      }
      verdict->refused_records++;
    }
  }
  verdict->record = count;
  if (UNLIKELY(p != end)) return REFUSED_MANY_BYTES;
  verdict->greatest_timestamp_ms = greatest_ms;
  if (UNLIKELY(verdict->refused_records)) return REFUSED_RECORDS;
  return broker_sets_time || greatest_ms == verdict->max_timestamp_ms ? VALID : VALID_WITH_OTHER_TIME;
}

/* Validates the one batch in `length` bytes at `p`: its header, its CRC and, unless they are compressed, its records. */
API int tiered_validate(const uint8_t *p, int64_t length, int64_t now_ms, const tiered_limits *limits,
                        tiered_verdict *verdict) {
  if (length < HEADER_BYTES) return length > 16 && p[16] != 2 ? REFUSED_MAGIC : REFUSED_SHORT;
  if (p[16] != 2) return REFUSED_MAGIC;
  verdict->base_offset = be64(p);
  verdict->size_bytes = (int64_t)(int32_t)be32(p + 8) + 12;
  verdict->leader_epoch = (int32_t)be32(p + 12);
  verdict->magic = p[16];
  verdict->crc = be32(p + 17);
  verdict->attributes = be16_signed(p + 21);
  verdict->last_offset_delta = (int32_t)be32(p + 23);
  verdict->base_timestamp_ms = be64(p + 27);
  verdict->max_timestamp_ms = be64(p + 35);
  verdict->producer_id = be64(p + 43);
  verdict->producer_epoch = be16_signed(p + 51);
  verdict->base_sequence = (int32_t)be32(p + 53);
  verdict->record_count = (int32_t)be32(p + 57);
  verdict->greatest_timestamp_ms = NO_TIMESTAMP;
  verdict->record = verdict->refused_records = 0;
  if (verdict->size_bytes != length) return REFUSED_SIZE;
  if (length > limits->max_message_bytes) return REFUSED_TOO_LARGE;
  if (verdict->crc != tiered_crc32c(p + 21, length - 21, 0)) return REFUSED_CRC;
  if (verdict->base_offset != 0) return REFUSED_BASE_OFFSET;
  if (verdict->attributes & ATTRIBUTE_CONTROL) return REFUSED_CONTROL;
  if (verdict->attributes & ATTRIBUTE_DELETE_HORIZON) return REFUSED_DELETE_HORIZON;
  if (verdict->attributes & ATTRIBUTE_LOG_APPEND_TIME) return REFUSED_TIMESTAMP_TYPE;
  if (verdict->record_count <= 0 || verdict->last_offset_delta != verdict->record_count - 1) return REFUSED_COUNT;
  const int codec = verdict->attributes & ATTRIBUTE_CODEC;
  if (codec > CODEC_ZSTD) return REFUSED_CODEC;
  if (verdict->producer_id < 0) {
    if (verdict->attributes & ATTRIBUTE_TRANSACTIONAL) return REFUSED_TRANSACTION;
  } else if (verdict->base_sequence < 0 || verdict->producer_epoch < 0) {
    return REFUSED_SEQUENCE;
  }
  if (codec) return VALID_SO_FAR;
  return tiered_validate_records(p + HEADER_BYTES, length - HEADER_BYTES, now_ms, limits, verdict, 0, 0);
}
