"""One script a published table. A package, so that no other package of this name (xDSL's wheel has one) is found."""
