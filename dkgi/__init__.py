"""dkgi: experiments on agents that read a knowledge graph as plain files."""

__version__ = "0.1.0"
