"""The package; tools are configured in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
EXTRAS = {
    "fairseq": [
        "fairseq-fixed==0.12.3.1",  # the plugin; another installed fairseq works, too
        "tensorboardX",  # --tensorboard-logdir; without it every command of fairseq's asks for it
    ],
    "ctranslate2": ["ctranslate2>=4.8.3"],  # `export ctranslate2`, which says why
    "data": ["sacremoses", "tqdm"],  # words split by Moses; progress bars
    "detect": ["py3langid>=0.4"],  # the language of a text: `serve`, `check_languages` in workflows
    "docs": ["mkdocs-material>=9.8,<10", "mkdocstrings[python]>=1,<2"],  # `make docs`
    # BLEU of Japanese and Korean
    "ja": ["sacrebleu[ja]"],
    "ko": ["sacrebleu[ko]"],
    "plots": ["jinja2", "matplotlib"],  # `look`, `extrapolate`, the workflows' curves
    "pretraining": ["pytorch-optimizer>=4.1,<5"],  # --optimizer lamb_torch
    # older versions of Starlette refuse the host [::1]; Uvicorn 0.40 ignores a signal in the start
    # older versions of python-multipart are slow with many line breaks
    "serve": ["python-multipart>=0.0.32", "starlette>=1.10", "uvicorn>=0.46"],
    # `export hf`, `import hf`, diet_fairseq.hf
    # protobuf: SentencePiece models of transformers' folders
    "transformers": ["protobuf", "safetensors", "transformers>=5.4,<6"],
}
EXTRAS["workflows"] = [  # examples/
    *("pandas", "pooch>=1.9", "pyyaml", "scipy", "snakemake>=9.27,<10"),  # rules
    # fine-tuning in roberta/
    *("accelerate", "datasets>=4", "filelock", "scikit-learn"),
    *(EXTRAS["data"] + EXTRAS["plots"] + EXTRAS["transformers"]),
]
EXTRAS["all"] = [*dict.fromkeys(requirement for extra in EXTRAS.values() for requirement in extra)]
EXTRAS["dev"] = [
    *EXTRAS["all"],
    "httpx2",  # the client in starlette's tests
    "build",
    "codespell==2.4.3",
    "cogapp>=3.6,<4",  # `make tables`
    "libretranslatepy",  # a client of the service
    "mypy==2.4.1",
    "peft",  # LoRA in docs/hugging-face.md
    "proselint==0.16.0",
    "pytest>=8",
    "pytest-xdist",
    "sentence-transformers>=6.2,<7",  # reads exported encoders in tests
    "snakemake-executor-plugin-cluster-generic",  # a fake cluster in tests
    "snakemake-executor-plugin-slurm>=2.8",  # a real one, where Slurm is installed
    "ruff==0.17.5",
    "triton; platform_system == 'Linux'",  # --attention-backend offsets
    "transformers==5.24.0",  # whose types mypy reads
]

setup(
    name="diet_fairseq",
    version=re.search(r'__version__ = "(.+)"', (HERE / "diet_fairseq/version.py").read_text())[1],
    description="Decoupled positional attention (DIET, TUPE and their baselines) for fairseq",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="the diet_fairseq authors",
    keywords=["fairseq", "Transformer", "position encoding", "machine translation", "pretraining"],
    license="MIT",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    packages=find_packages(include=["diet_fairseq", "diet_fairseq.*"]),
    entry_points={"console_scripts": ["diet-fairseq=diet_fairseq.cli:main"]},
    package_data={"diet_fairseq": ["py.typed", "look/page.html", "translate/service/page.html"]},
    zip_safe=False,  # --user-dir needs a folder
    python_requires=">=3.11",
    install_requires=[
        "torch>=2.10",  # in older versions weights_only can corrupt memory (CVE-2026-24747)
        "numpy",
        "langcodes>=3.5",  # languages and their scripts by code
        "regex",  # letters by script
        "pydantic>=2.11",  # files and requests that come from elsewhere
        "sacrebleu",
        "sentencex>=1.0.32",  # sentences of a line
        "sentencepiece>=0.2.3",  # says which characters a piece stands for
        "subword-nmt",
        "tokenizers",  # GPT-2's byte-level BPE; transformers needs it, too
    ],
    extras_require=EXTRAS,
)
