// Package candidate computes one posterior from a round's statistics, for every kind of round: each
// client's class means with counts, its scatter within classes and its curve ([Client]), and a
// server's corpora ([Corpus]). Nothing is trained.
//
// A candidate is a prior: a target towards which the covariance within classes is drawn, and how
// strongly. A corpus whose classes have the round's names is one more client that sends its images;
// how far these lie from the clients' is the candidate then.
//
//	evidence     the head of all clients but some is asked about these clients' class means and
//	             draws of their scatter, with tails; about as many images of each as the others
//	             have, at most
//	temperature  the evidence's own, times kappa, by which images lie further along a head than
//	             draws, at all images
//	refit        a softmax regression on class means and draws about them, tied to the candidate's
//	             discriminant
//	mixture      the candidates of most evidence, each over the temperatures that the evidence
//	             leaves open
//
// A round has M clients and C classes, and features x of K numbers. Symbols of the equations:
//
//	n_c, m_c   images of class c, and their mean [K]; at client m n_mc and m_mc
//	m0         the mean of all images, sum_c n_c m_c / sum_c n_c [K]
//	S, dof     scatter within classes [K, K], and its degrees of freedom
//	W0, s      a candidate's target [K, K], and its strength in units of K
//	W          covariance within classes (nu0 t W0 + S)/(nu0 + dof),
//	           with nu0 = s K and t = tr(W0^-1 S)/(K dof)
//	n0         images whose noise is as much as the spread of class means (pool.pseudo)
//	kappa      the factor on the temperature where draws stand for images
//
// A head's logit of class c, at a temperature T, is (a_c'(x - m0) + b_c)/T, where
//
//	a_c = W^-1 n_c/(n_c + n0) (m_c - m0),   b_c = -a_c'W a_c / 2
//
// docs/results/one.md has its scores, docs/notes/moments.md how constants were chosen, and
// docs/concepts.md the case of a corpus of the round's names.
//
// Beside a corpus a round of more than 128 features is computed in the 128 coordinates in which the
// corpus's images vary most too. These two, and candidates with and without a corpus's covariance,
// have the shares that clients left out are sure of.
//
// Features may have any scale: no figure depends on it.
package candidate
