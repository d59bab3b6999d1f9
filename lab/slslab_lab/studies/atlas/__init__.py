"""The atlas: the fastest and the cheapest systems of the papers, over model sizes and numbers of workers."""
