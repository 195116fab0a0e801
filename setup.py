"""Builds the one native kernel, where a C compiler is at hand. Everything else is in pyproject.toml.

The extension is optional: without a compiler the install succeeds and `tiered.formats` decodes in Python.
`_decode.c` is plain C without Python.h: ctypes loads it, nothing imports it.
"""

from pathlib import Path

from setuptools import Extension, find_packages, setup

DECODER = Path("tiered/formats/_decode.c")

setup(
    packages=[*find_packages(include=["tiered", "tiered.*"]), *find_packages("spark", include=["pyspark_tiered*"])],
    package_dir={"pyspark_tiered": "spark/pyspark_tiered"},
    ext_modules=[
        Extension("tiered.formats._decode", [str(DECODER)], optional=True, extra_compile_args=["-O2"]),
    ]
    if DECODER.exists()
    else [],
)
