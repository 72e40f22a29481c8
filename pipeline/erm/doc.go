// Package erm fits softmax regressions: empirical risk minimisation with soft labels, weights and
// an L2 regulariser,
//
//	J(T) = sum_i w_i (logsumexp(x_i T) - <y_i, x_i T>) + l2/2 |T - T0|^2,
//
// where x_i is a feature row followed by 1, y_i a point of the simplex, T is D x C with the bias
// row last, and T0 is 0 unless given. The bias is regularised as the weights are. For labels on the
// simplex the bracket is the cross-entropy -<y_i, log softmax(x_i T)>, and J is strictly convex, so
// the minimiser is unique.
//
// It is found by Newton's method. With P the softmaxes, N x C, and p_i their rows,
//
//	grad J = X'W(P - Y) + l2 (T - T0)
//	H V    = sum_i w_i x_i'(p_i * a_i - <p_i, a_i> p_i) + l2 V,   a_i = x_i V
//
// Each step solves H S = grad J by conjugate gradient, preconditioned by one D x D matrix that all
// classes share,
//
//	M = sum_i w_i v_i x_i'x_i + l2 I,   v_i = (1 - |p_i|^2)/(C - 1)
//
// where v_i is the mean eigenvalue of diag p_i - p_i'p_i on vectors that sum to 0, as gradients of
// the data do over the classes. A backtracking line search makes the method converge from anywhere
// (Nocedal and Wright 2006, section 3.1).
//
// Where the tolerance is within reach of float32, L-BFGS in float32 comes first, preconditioned by
// a diagonal, and float64 checks where it ends (Nocedal and Wright 2006, section 7.2). Newton's
// method takes over where that takes more work than it is worth. Two classes are fitted as one
// head.
//
// Where points are fewer than rows of the head, the fit is made in coordinates of their span.
//
// The minimiser is a differentiable function of points, labels and weights (the implicit function
// theorem); Fits.Backward returns the vector-Jacobian product with the same conjugate gradient.
package erm
