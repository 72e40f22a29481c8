package dense_test

import (
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"fmp/onnx/dense"
)

// c = a bᵀ.
func ExampleGemm() {
	a := blas64.General{Rows: 1, Cols: 2, Stride: 2, Data: []float64{1, 2}}
	b := blas64.General{Rows: 3, Cols: 2, Stride: 2, Data: []float64{1, 0, 0, 1, 1, 1}}
	c := blas64.General{Rows: 1, Cols: 3, Stride: 3, Data: make([]float64, 3)}
	dense.Gemm(blas.NoTrans, blas.Trans, 1, a, b, 0, c)
	fmt.Println(c.Data)
	// Output: [1 2 3]
}
