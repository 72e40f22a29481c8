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
// It is found by Newton's method; each step solves H d = grad J by conjugate gradient,
// preconditioned by Boehning's bound. Boehning 1992, "Multinomial logistic regression algorithm",
// shows diag p - p p' <= 1/2 (I - 11'/C), hence H <= 1/2 (I - 11'/C) kron X'WX + l2 I. The
// preconditioner is 1/4 (1 - 1/C) X'WX + l2 I: one D x D matrix, shared by all classes, of the same
// shape as the bound at half its height. A backtracking line search makes the method converge from
// anywhere (Nocedal and Wright 2006, section 3.1).
//
// Where the tolerance is within reach of float32, L-BFGS in float32 comes first, preconditioned by
// a diagonal, and float64 checks where it ends (Nocedal and Wright 2006, section 7.2). Newton's
// method takes over where that takes more work than it is worth. Two classes are fitted as one
// head.
//
// Where points are fewer than rows of the head, the fit is made in coordinates of their span.
//
// The minimiser is a differentiable function of points, labels and weights (the implicit function
// theorem); Backward returns the vector-Jacobian product with the same conjugate gradient.
package erm
