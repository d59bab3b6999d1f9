"""The atlas: which point of the papers' space is fastest and which is cheapest, over model sizes and workers."""
