"""Data sets at scale: folders, shards and buckets of images, to L3 and back.

`l3 convert` finds its `work`, jobs that a scheduler of `engine` maps. Each job streams its shard
through a container (`tar`, `tfrecord`, `parquet`) and its images through `pool`. `manifest` lists
what is done. Other schedulers map `convert_job` over jobs.
"""
