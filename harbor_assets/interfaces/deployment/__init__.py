"""Installing on a cluster: images, manifests, waiting, removing. A thin wrap of kustomize, kubectl and buildctl."""
