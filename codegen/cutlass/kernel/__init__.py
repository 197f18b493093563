"""Common terms of every family of kernels: work, candidates' floors, launches, element-wise operators as C++."""
