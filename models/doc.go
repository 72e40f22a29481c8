// Package models defines the program's graphs: attention blocks, predictors, the embedding of
// client data, the fused client graph, the classifier and feature extractors, and the manifest that
// a saved model carries.
//
// The blocks are those of Lee et al., Set Transformer (ICML 2019, arXiv:1810.00825). The type block
// is the multihead attention block MAB, of which SAB, ISAB and PMA consist. One configuration gives
// the published block, another the identity-initialised one that starts as a smoothed bootstrap of
// its context.
//
// Notation: dx features, C classes, a point z = [h, y] of dz = dx + C numbers, blocks of width d,
// sets of n points, s compressed points.
package models
