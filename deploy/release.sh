#!/bin/bash
# Packs what a broker installs without the internet: Tiered and all that it needs, as wheels, and whom to trust for the
# database. The versions and hashes are those of deploy/requirements.txt (`make lock`). Run it with the Python version and
# the processor that the brokers have.
#
#   deploy/release.sh OUT_FOLDER DATABASE_CA.pem
#
# DATABASE_CA.pem is AWS's https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem.
set -euo pipefail

out=${1:?say where to: deploy/release.sh OUT_FOLDER DATABASE_CA.pem}
authority=${2:?say whom to trust for the database: deploy/release.sh OUT_FOLDER DATABASE_CA.pem}
grep -q 'BEGIN CERTIFICATE' "$authority" || { echo "release.sh: $authority holds no certificate in PEM" >&2; exit 1; }
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3.11}
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml")
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
mkdir -p "$out" "$staging/wheels" "$staging/source"
# From a copy: setuptools packs whatever an earlier build left in build/, modules too that are gone since.
cp -r "$root"/{pyproject.toml,setup.py,README.md,LICENSE,tiered,spark} "$staging/source"
"$python" -m venv "$staging/build"
"$staging/build/bin/pip" download --quiet --require-hashes --only-binary :all: --dest "$staging/wheels" \
  -r "$root/deploy/requirements.txt"
"$staging/build/bin/pip" install --quiet --no-index --find-links "$staging/wheels" --upgrade setuptools
"$staging/build/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$staging/wheels" "$staging/source"
cp "$authority" "$staging/database-ca.pem"
tar --sort=name --owner=0 --group=0 --numeric-owner -czf "$out/tiered-$version.tar.gz" -C "$staging" wheels database-ca.pem
(cd "$out" && sha256sum "tiered-$version.tar.gz")
