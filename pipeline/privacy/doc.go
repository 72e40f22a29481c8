// Package privacy releases class sums with differential privacy, and draws class means given such sums.
//
// A data point's coordinates w are clipped to norm R, rounded to whole numbers of R/[Steps] and summed by class, beside a count of
// R/4 a point: vectors of whole numbers of bounded length, to which discrete Gaussian noise (Canonne, Kamath and Steinke
// 2020) is added, so that no floating-point number leaves a client (Mironov 2012). The noise is that of the analytic Gaussian mechanism (Balle and
// Wang 2018). The posterior knows it: a released count and sum are likelihoods of known variance, not facts (Bernstein and Sheldon 2018;
// Heikkilä et al. 2017).
//
// The package stands on the standard library and package point alone, as it is part of the program for small devices.
package privacy
