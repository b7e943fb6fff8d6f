"""Data sets at scale: folders, shards and buckets of images, to L3 and back.

`command` is `l3 convert`. It makes a plan (`plan`) of jobs (`job`), which an engine (`engine`)
maps; each job streams its shard through a container (`tar`, `tfrecord`, `parquet`) and its images
through `pipeline`. `manifest` remembers what is done. Other engines map `convert_job` over jobs.
"""
