module outside/linearizability

go 1.19

require (
	github.com/anishathalye/porcupine v1.0.2
	github.com/lib/pq v1.10.9
)
