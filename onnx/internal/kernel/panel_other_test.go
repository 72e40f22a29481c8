//go:build !amd64

package kernel

import "testing"

func narrower(*testing.T) bool { return false }

func inGo(*testing.T) bool { return false }

func byteKernels(t *testing.T, f func(t *testing.T)) { t.Run("go", f) }
