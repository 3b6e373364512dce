#include "runtime/sharding/codec_functions.hpp"

#include "comm/module.hpp"

namespace dslaunch::runtime {

const CodecFunctions& codec_functions() {
  using Table = const CodecFunctions* (*)();
  static const CodecFunctions* functions =
      reinterpret_cast<Table>(comm::Module::cuda().symbol(kCodecFunctionsSymbol))();
  return *functions;
}

}  // namespace dslaunch::runtime
