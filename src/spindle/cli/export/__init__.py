"""`spindle export`: topics into Delta, Iceberg and Parquet tables."""
