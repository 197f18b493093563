"""The architectures that are exported: 24, small, with inputs as a user has them: token numbers, masks, indices.

name --ARCHITECTURES[name]()--> Network: a module, what draws its inputs, how many attentions its configuration says

Most are transformers' own classes made from a configuration, the rest is in `convolutional.py` and `sequential.py`.
Nothing is downloaded; `exporting.py` seeds the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from torch import Generator, Tensor, nn

from tests.exports.convolutional import DenseNet, MlpMixer, SqueezeNet, UNet, VideoNet
from tests.exports.sequential import Conformer, Dlrm, GruTagger, LstmTagger, WideAndDeep

__all__ = ["ARCHITECTURES", "Inputs", "Network"]

TOKENS, WORDS = 16, 100
"""Length of a sentence, size of the vocabulary."""

Inputs = Callable[[Generator], dict[str, Tensor]]
"""Draws a set of inputs: name -> tensor."""


@dataclass(frozen=True, slots=True)
class Network:
    """`attentions` is the number that the configuration says: one a layer."""

    module: nn.Module
    inputs: Inputs
    attentions: int = 0


class Answer(nn.Module):
    """One field of what a model of transformers gives, for inputs by position."""

    def __init__(self, model: nn.Module, field: str, *names: str) -> None:
        super().__init__()
        self.model, self.field, self.names = model, field, names

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)))[self.field]


def numbers(name: str, *shape: int) -> Inputs:
    return lambda generator: {name: torch.randn(shape, generator=generator)}


def image(size: int = 32) -> Inputs:
    return numbers("pixel_values", 1, 3, size, size)


def words(generator: Generator) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(2, WORDS, (1, TOKENS), generator=generator)}


def sentence(generator: Generator) -> dict[str, Tensor]:
    """Words, padded at the end by number 1, and the mask that says which are words."""
    length = int(torch.randint(TOKENS // 2, TOKENS, (), generator=generator))
    mask = (torch.arange(TOKENS) < length).long().unsqueeze(0)
    return {"input_ids": torch.where(mask == 1, words(generator)["input_ids"], 1), "attention_mask": mask}


def table_rows(*tables: int) -> Inputs:
    """13 numbers, and a row of each table."""

    def draw(generator: Generator) -> dict[str, Tensor]:
        rows = [torch.randint(0, rows, (1,), generator=generator) for rows in tables]
        return {"numbers": torch.randn(1, 13, generator=generator), "indices": torch.stack(rows, 1)}

    return draw


def encoder(model: nn.Module) -> Network:
    return Network(Answer(model, "last_hidden_state", "input_ids", "attention_mask"), sentence, attentions=2)


def classifier(model: nn.Module, inputs: Inputs, attentions: int = 0) -> Network:
    return Network(Answer(model, "logits", "pixel_values"), inputs, attentions)


BERT_SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
}


def bert() -> Network:
    return encoder(transformers.BertModel(transformers.BertConfig(**BERT_SIZES), add_pooling_layer=False))


def roberta() -> Network:
    """Positions are counted from the tokens that are no padding, by a running sum."""
    return encoder(transformers.RobertaModel(transformers.RobertaConfig(**BERT_SIZES), add_pooling_layer=False))


def distilbert() -> Network:
    config = transformers.DistilBertConfig(
        vocab_size=WORDS, dim=48, n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=32
    )
    return encoder(transformers.DistilBertModel(config))


def gpt2() -> Network:
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_embd=48,
        n_layer=2,
        n_head=4,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return encoder(transformers.GPT2Model(config))


def llama_prefill() -> Network:
    """Grouped-query attention, rotary embeddings, RMSNorm, SwiGLU; logits of the next word."""
    config = transformers.LlamaConfig(**BERT_SIZES, num_key_value_heads=2, use_cache=False)
    model = transformers.LlamaForCausalLM(config)
    return Network(Answer(model, "logits", "input_ids", "attention_mask"), sentence, attentions=2)


def t5_encoder() -> Network:
    """RMSNorm, positions as a bias of the scores."""
    config = transformers.T5Config(vocab_size=WORDS, d_model=48, d_kv=12, num_layers=2, num_heads=4, d_ff=96)
    return encoder(transformers.T5EncoderModel(config))


def vit() -> Network:
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8
    )
    return classifier(transformers.ViTForImageClassification(config), image(), attentions=2)


def swin() -> Network:
    """Attention in windows of 4 x 4, in every second layer shifted."""
    config = transformers.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return classifier(transformers.SwinForImageClassification(config), image(), attentions=4)


def convnext() -> Network:
    config = transformers.ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1])
    return classifier(transformers.ConvNextForImageClassification(config), image(64))


def resnet() -> Network:
    config = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[32, 64, 96], depths=[1, 2, 1])
    return classifier(transformers.ResNetForImageClassification(config), image())


def mobilenet_v2() -> Network:
    config = transformers.MobileNetV2Config(image_size=32, depth_multiplier=0.25)
    return classifier(transformers.MobileNetV2ForImageClassification(config), image())


def efficientnet() -> Network:
    config = transformers.EfficientNetConfig(
        image_size=32, width_coefficient=0.25, depth_coefficient=0.3, hidden_dim=320
    )
    return classifier(transformers.EfficientNetForImageClassification(config), image())


def whisper_encoder() -> Network:
    config = transformers.WhisperConfig(
        d_model=48,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=96,
        num_mel_bins=20,
        max_source_positions=50,
        vocab_size=WORDS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperModel(config).encoder
    answer = Answer(model, "last_hidden_state", "input_features")
    return Network(answer, numbers("input_features", 1, 20, 100), attentions=2)


def wav2vec2() -> Network:
    """Windows over the samples of a second or so, positions by a grouped convolution."""
    config = transformers.Wav2Vec2Config(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 2, 2),
        conv_kernel=(10, 3, 3),
        num_feat_extract_layers=3,
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4,
        vocab_size=32,
    )
    answer = Answer(transformers.Wav2Vec2Model(config), "last_hidden_state", "input_values")
    return Network(answer, numbers("input_values", 1, 1600), attentions=2)


ARCHITECTURES: dict[str, Callable[[], Network]] = {
    "bert": bert,
    "roberta": roberta,
    "distilbert": distilbert,
    "gpt2": gpt2,
    "llama_prefill": llama_prefill,
    "t5_encoder": t5_encoder,
    "vit": vit,
    "swin": swin,
    "convnext": convnext,
    "conformer": lambda: Network(Conformer(), numbers("features", 1, 40, 20), attentions=2),
    "whisper_encoder": whisper_encoder,
    "wav2vec2": wav2vec2,
    "dlrm": lambda: Network(Dlrm(), table_rows(50, 20, 80, 30)),
    "wide_and_deep": lambda: Network(WideAndDeep(), table_rows(40, 25, 60)),
    "lstm_tagger": lambda: Network(LstmTagger(), words),
    "gru_tagger": lambda: Network(GruTagger(), words),
    "unet": lambda: Network(UNet(), image()),
    "resnet": resnet,
    "mobilenet_v2": mobilenet_v2,
    "efficientnet": efficientnet,
    "mlp_mixer": lambda: Network(MlpMixer(), image()),
    "densenet": lambda: Network(DenseNet(), image(64)),
    "squeezenet": lambda: Network(SqueezeNet(), image(64)),
    "video_net": lambda: Network(VideoNet(), numbers("video", 1, 3, 8, 16, 16)),
}
"""By name, what makes it: the weights are those of the class, before they are seeded."""
