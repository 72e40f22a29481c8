// Package dense multiplies float64 matrices and takes softmaxes, on the calling goroutine and
// several times faster than gonum's BLAS, whose shapes and flags it keeps: [Gemm] for any product,
// [Pack] and [Packed.Mul] where one operand stays the same over many products, as points do while a
// model is fitted to them.
//
// Products follow Goto and van de Geijn ("Anatomy of high-performance matrix multiplication",
// 2008): the right operand is copied into panels of [Width] columns, and the innermost loop keeps a
// tile of sums in registers: 10 x 16 with AVX-512, 5 x 8 with AVX2, NEON, or in Go. The left
// operand is read where it lies, transposed or not. A product's bits depend on the processor's
// instruction set and on nothing else: not on how its rows or columns are divided among calls, nor
// on threads.
//
// Softmaxes lie the other way round than is usual, one class a row and one point a column, so that
// a vector instruction treats as many points as it has lanes; see [Softmax].
//
// Decompositions of symmetric matrices are made of these products: [Cholesky], with [Factor.Solve],
// [Factor.SolveHalf] and [Factor.Inverse], and [Eigen], each in the memory of its operand.
package dense
