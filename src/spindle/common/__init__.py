"""Value types, error codes and ports for all packages. It imports no other package of Spindle."""
