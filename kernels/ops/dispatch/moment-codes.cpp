#include "../moment-codes.h"

namespace sfx {

namespace {

struct Both {
  MomentCodes squares, with_sign;
  Both() { fill_moment_codes(false, &squares), fill_moment_codes(true, &with_sign); }
};

}  // namespace

const MomentCodes& moment_codes(bool with_sign) {
  static const Both both;
  return with_sign ? both.with_sign : both.squares;
}

}  // namespace sfx
