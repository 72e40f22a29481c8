//go:build !amd64

package kernel

import "testing"

func narrower(*testing.T) bool { return false }

func inGo(*testing.T) bool { return false }

func withoutDots(*testing.T) bool { return false }
