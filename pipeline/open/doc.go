// Package open computes the posterior of a softmax head for classes that the server's corpus lacks
// (open scope): all coordinates of the features are kept, few scalars are learned, and the centre,
// spread and covariance of the classes are estimated from the uploads.
//
// A client sends masses n_mc and class means of softened features phi(h) = (h - c)/sqrt(1 + |h -
// c|^2/r^2). With the pooled n_c, class means f_c, and S the scatter of the clients' class means
// about them (nu degrees of freedom):
//
//	s     = (kappa + tr(S)/tr(W0))/(kappa + nu)
//	W     = (nu0 s W0 + S)/(nu0 + nu)
//	G     = ((1-delta) W + delta tr(W)/k I)^-1
//	mt    = (eta m0 + sum_c w_c f_c)/(eta + sum_c w_c),  w_c = n_c/(n_c + 2)
//	q     = sum_c |f_c - mt|_G^2/(P-1) - tr(GW) mean 1/n_c,  0.02 tr(G B0) at least
//	b     = exp(log b) (k0 tr(G B0) + (P-1) q)/(k0 + P-1)
//	B     = b ((1-gamma) B0/tr(G B0) + gamma G^-1/k)
//	mu_c ~ N(mt + K_c (f_c - mt), tau (B - K_c B)),  K_c = n_c B (n_c B + W)^-1
//	Q     = mean_c (|m_c|_G^2 + z tr(G V_c)),  m_c = K_c (f_c - mt),  V_c = B - K_c B
//	rho   = exp(r0 + r1 log(Q + 0.001) + r2 log(C/10) + r3 log(n/20C) + r4 log s)
//	logit_c = rho ((phi - mt)'G(mu_c - mt) - |mu_c - mt|_G^2/2 + o1 tau tr(G V_c)/2)
//	          + o2 sum_j log(1 + v_cj)/k
//
// Here |x|_G^2 is x'Gx, P the number of classes that are present, n the images of all, and v_cj the
// eigenvalues of W^-1 V_c. The symbols are
//
//	s      how much wider the task's classes scatter than the corpus's
//	W      covariance within classes: inverse-Wishart mean, prior from the corpus's W0
//	G      metric of the heads
//	mt     centre of the task's classes
//	q, b   spread of the classes present, and size of the prior: the corpus's and the uploads' own
//	B      prior covariance of class means about mt, from the corpus's B0
//	Q      separation of the task
//	rho    inverse temperature
//	kappa  degrees of freedom of the prior of s (in packages discriminant and candidate kappa is a
//	       factor on the temperature)
//
// A posterior sample draws all mu_c jointly; its head is the limit of a fit to infinitely many
// points drawn from them. The scalars (nu0, delta, ..., r4) are trained by leaving classes of the
// corpus out (package meta).
//
// Heads are fitted to the uploads once more, and intervals come from such fits as well (package
// sample, Refit); h, by which they widen the variance of class means, is estimated from corpus and
// uploads (widening.go).
//
// One generalized eigendecomposition of B and W per task makes gains and posterior covariances
// diagonal: with E'W^-1 E = I and E'W^-1 B W^-1 E = diag(lambda), mu_c - mt = E u_c, K_c is lambda
// n_c/(lambda n_c + 1).
package open
