"""What every family of kernels speaks: work, candidates' floors, launches, element-wise operators as C++."""
