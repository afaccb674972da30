"""The pages of the console, one module for each; `page_table` lists them."""
