"""Record batches of format version 2, as producers send, logs store and consumers read them."""
