package onnx

import "fmt"

// Upgrade brings a model up to a newer version of the standard operator set.
func Upgrade(m *Model, to int) error {
	if int(m.Opset()) == to {
		return nil
	}
	return fmt.Errorf("no upgrade from operator set %d to %d", m.Opset(), to)
}
