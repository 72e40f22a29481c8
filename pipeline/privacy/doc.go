// Package privacy releases class sums with differential privacy, and draws class means given such
// sums.
//
// A data point's coordinates w are clipped to norm R, rounded to integer multiples of R/[Steps] and
// summed by class, together with a count of R/4 per point: integer vectors of bounded norm, to
// which discrete Gaussian noise (Canonne, Kamath and Steinke 2020) is added, so that no
// floating-point number leaves a client (Mironov 2012). The noise is calibrated as in the analytic
// Gaussian mechanism (Balle and Wang 2018). The posterior takes the noise into account: a released
// count or sum is an observation of known variance, not the true value (Bernstein and Sheldon 2018;
// Heikkilä et al. 2017).
//
// The package depends on the standard library and package point alone, as it is part of the program
// for small devices.
package privacy
