"""What the exchange has to know of a wire: what a reply used, whether it is whole, and what its errors mean.

>>> WIRES["openai_chat"].read(b'{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}')
Reading(usage=Usage(input_fresh=9, cache_read=0, cache_write=0, output=2, reasoning=0, requests=1, complete=True), fault=None)

Pure functions over raw bytes. Not covered: what the reply says (models/<wire>.py).
"""
