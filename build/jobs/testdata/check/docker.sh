docker run --device /dev/infiniband example/a:1
