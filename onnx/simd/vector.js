// The program's vector kernels are a module of their own that works on the program's memory, which exists once the program is instantiated:
// until then its imports are these functions, behind which the kernels come.
self.fmpVector = importObject => {
  let kernels;
  importObject.fmp = {
    panels: p => kernels.panels(p),
    taps: p => kernels.taps(p),
    finish: p => kernels.finish(p),
    pairs: p => kernels.pairs(p),
    deinterleave: p => kernels.deinterleave(p),
  };
  // The program calls fmpVectorStart with the module, and computes without it where a browser lacks its instructions.
  return program => {
    self.fmpVectorStart = bytes => {
      if (!WebAssembly.validate(bytes)) return false;
      kernels = new WebAssembly.Instance(new WebAssembly.Module(bytes), { go: { mem: program.exports.mem } }).exports;
      return true;
    };
  };
};
