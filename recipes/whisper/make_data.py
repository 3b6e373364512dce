#!/usr/bin/env python3
"""Log-mel features and labels of audio clips: lines of CLIPS.tsv are a WAV file (16 kHz, 16 bits, one channel) and its
transcript. Needs transformers, here only."""
import argparse
import os
import wave

import numpy

RATE = 16000


def samples_of(path):
    with wave.open(path, "rb") as clip:
        if (clip.getframerate(), clip.getsampwidth(), clip.getnchannels()) != (RATE, 2, 1):
            raise SystemExit(f"make_data.py: {path} is not 16 kHz, 16 bits, one channel; ffmpeg -i {path} -ar 16000 -ac 1 OUT.wav")
        return numpy.frombuffer(clip.readframes(clip.getnframes()), "<i2").astype("float32") / 32768


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", help="CLIPS.tsv")
    parser.add_argument("out", help="OUT.npz")
    parser.add_argument("--model", metavar="DIR", required=True, help="its tokenizer, and the feature extractor if it has one")
    options = parser.parse_args()
    from transformers import AutoTokenizer, WhisperFeatureExtractor
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    has_extractor = os.path.exists(os.path.join(options.model, "preprocessor_config.json"))
    extractor = WhisperFeatureExtractor.from_pretrained(options.model) if has_extractor else WhisperFeatureExtractor()
    with open(options.clips, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file if line.strip()]
    where = os.path.dirname(options.clips)
    features = [extractor(samples_of(os.path.join(where, path)), sampling_rate=RATE, return_tensors="np").input_features[0]
                for path, _ in rows]
    ids = [tokenizer(text).input_ids for _, text in rows]
    labels = numpy.full((len(ids), max(map(len, ids))), -100, "int64")
    for row, tokens in zip(labels, ids):
        row[:len(tokens)] = tokens
    numpy.savez(options.out, input_features=numpy.stack(features).astype("float32"), labels=labels)
    print(f"{options.out}: {len(rows)} clips, labels of up to {labels.shape[1]} tokens")


if __name__ == "__main__":
    main()
