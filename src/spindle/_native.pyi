"""The Rust crate `native/`; `spindle.common.native` says whether it can be imported."""
