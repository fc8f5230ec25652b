// Package helm tests the chart in quern without a cluster: Helm renders it, and what is rendered passes the schemas of
// Kubernetes and the types of KEDA and of the Prometheus operator. It is a module of its own, so that the program does
// not depend on them.
package helm
