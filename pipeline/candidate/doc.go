// Package candidate computes one posterior from a round's statistics, for every kind of round: each
// client's class means with counts, its scatter within classes and its curve ([Client]), and a
// server's corpora ([Corpus]). Nothing is trained.
//
// A candidate is a prior: a target towards which the covariance within classes is drawn, and how
// strongly. A corpus whose classes have the round's names is one more client that sends its images;
// how far these lie from the clients' is the candidate then.
//
//	evidence     the head of all clients but some is asked about these clients' class means and draws of their scatter, with tails;
//	             about as many images of each as the others have, at most
//	temperature  the evidence's own, times kappa, by which images lie further along a head than draws, at all images
//	refit        a softmax regression on class means and draws about them, tied to the candidate's discriminant
//	mixture      the candidates of most evidence, each over the temperatures that the evidence leaves open
//
// Beside a corpus a round of more than 128 features is computed in the 128 coordinates in which the
// corpus's images vary most too. These two, and candidates with and without a corpus's covariance,
// have the shares that clients left out are sure of.
//
// Features may have any scale: no figure depends on it.
package candidate
