#include "runtime/sharding/codec_functions.hpp"

#include "comm/module.hpp"

namespace dslaunch::runtime {

const CodecFunctions& codec_functions() {
  static const CodecFunctions& functions = comm::Module::cuda().table<CodecFunctions>(kCodecFunctionsSymbol);
  return functions;
}

}  // namespace dslaunch::runtime
