// SPDX-License-Identifier: Apache-2.0
/// XXH3-128 behind a header of our own, compiled here: for this machine's vectors it is more than twice as fast as a
/// library that any machine can run.
#include "llmtrain/base/digest.hpp"

#include <fmt/format.h>

// Up to version 13, GCC takes its own AVX-512 intrinsics' undefined registers for uninitialised ones (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#define XXH_INLINE_ALL
#include <xxhash.h>
#pragma GCC diagnostic pop

#include "llmtrain/base/error.hpp"

namespace llmtrain {

namespace {

std::string hex_of(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

struct Digest::State {
  XXH3_state_t* hash = XXH3_createState();
};

Digest::Digest() : state_(std::make_unique<State>()) {
  require(state_->hash != nullptr && XXH3_128bits_reset(state_->hash) == XXH_OK, ExitCode::out_of_memory,
          "no memory for a digest");
}

Digest::~Digest() { XXH3_freeState(state_->hash); }

void Digest::add(const void* data, std::size_t bytes) { XXH3_128bits_update(state_->hash, data, bytes); }

std::string Digest::hex() const { return hex_of(XXH3_128bits_digest(state_->hash)); }

std::string digest_of(const void* data, std::size_t bytes) { return hex_of(XXH3_128bits(data, bytes)); }

}  // namespace llmtrain
