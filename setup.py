"""Installation: pip install . (or '.[test]')."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "recbole_prism/__init__.py").read_text(encoding="utf-8"))
README = ROOT / "README.md"

# recbole 1.2.1 requires ray <= 2.6.3, whose wheels end at Python 3.11; above, pip takes 1.2.0 (same code, no ray)
OLD, NEW = 'python_version < "3.12"', 'python_version >= "3.12"'

setup(
    name="recbole-prism",
    version=VERSION.group(1) if VERSION else "0",
    description="PRISM and its baselines for sequential recommendation: a fast, careful extension of RecBole 1.2",
    long_description=README.read_text(encoding="utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.9",
    packages=[*find_packages(include=["recbole_prism", "recbole_prism.*"]), "recbole_prism.properties"],
    package_dir={"recbole_prism.properties": "properties"},  # top level in a checkout
    package_data={"recbole_prism.properties": ["*.yaml", "*/*.yaml", "*/*/*.yaml", "paper/*.csv"]},
    install_requires=[
        "recbole>=1.2.0,<1.3",  # what is extended
        "torch>=2.4",  # fused Adam on the CPU
        f"numpy>=1.22,<2; {OLD}",  # ray 2.6.3, which recbole 1.2.1 brings, reads np.bool8
        f"numpy>=1.26; {NEW}",  # the names that RecBole misses in NumPy 2 are put back by _compat.py
        "pandas>=1.4,<3",  # pandas 3 leaves RecBole's missing values unfilled, silently
        "setuptools<81",  # pkg_resources for ray 2.6.3; distutils for thop
        f"pyarrow<26; {OLD}",  # Parquet logs in `prepare`; 26 refuses NumPy 1
        f"pyarrow; {NEW}",  # Parquet logs in `prepare`
        f"kmeans-pytorch; {NEW}",  # recbole 1.2.0 imports it without declaring it
        "scipy>=1.7",  # paired tests and bootstrap intervals of `compare`
        "scikit-learn",  # kmeans_backend: sklearn
        "psutil>=5.9",  # recbole 1.2.0 imports it without declaring it; memory in history.jsonl
        "safetensors>=0.4",  # weights without pickle
        "pyyaml>=5.4",  # settings
        "tqdm",  # progress bars
    ],
    extras_require={
        "tune": [f"ray[tune]>=2.6,<=2.6.3; {OLD}", f"ray[tune]>=2.44; {NEW}", "optuna>=3"],  # searches; TPE
        "faiss": ["faiss-cpu"],  # clustering of the intent models as their authors do it (kmeans_backend: faiss)
        "plots": ["matplotlib>=3.5"],  # figures
        "export": ["onnx", "onnxscript", "onnxruntime"],  # serving formats
        "test": ["pytest>=7", "pytest-timeout", "ruff", "mypy", "types-PyYAML"],  # the tests and what .ci/run checks
    },
    entry_points={
        # other packages add models under the group "recbole_prism.models": NAME = module:Class
        "console_scripts": ["recbole-prism = recbole_prism.cli:main"],
    },
)
