"""PyTorch modules of the families that people export: a CNN, a transformer's encoder, an LSTM, a detector, a U-Net. Small, with random weights,
each in a function for `module:function`, which returns it with inputs and its open dimensions."""

import torch
from torch import nn
from torch.nn import functional

_BATCH = torch.export.Dim("batch", min=1, max=64)
_LENGTH = torch.export.Dim("length", min=2, max=64)


class _Residual(nn.Module):
    """Two convolutions beside a projection, and a gate over the channels."""

    def __init__(self, taken, given):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(taken, given, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(given),
            nn.Hardswish(),
            nn.Conv2d(given, given, 3, padding=1, groups=given, bias=False),
            nn.BatchNorm2d(given),
        )
        self.beside = nn.Conv2d(taken, given, 1, stride=2)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(given, 4, 1), nn.ReLU(), nn.Conv2d(4, given, 1), nn.Hardsigmoid()
        )

    def forward(self, x):
        y = self.body(x)
        return functional.relu(y * self.gate(y) + self.beside(x))


class Cnn(nn.Module):
    """As MobileNetV3 and ResNet: residuals, depthwise convolutions, gates."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.SiLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(_Residual(16, 24), _Residual(24, 32))
        self.head = nn.Linear(32, 10)

    def forward(self, image):
        return {"logits": self.head(self.blocks(self.stem(image)).mean((2, 3)))}


class Encoder(nn.Module):
    """As BERT: ids and a mask of padding, places, layers of nn.TransformerEncoder, a pooled answer; the length is open."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(100, 32), nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, ids, mask):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        x = self.layers(x, src_key_padding_mask=mask == 0)
        weights = mask.to(x.dtype).unsqueeze(-1)
        return {"pooled": self.head((x * weights).sum(1) / weights.sum(1)), "tokens": x}


class Lstm(nn.Module):
    """A tagger: two LSTM layers in both directions over embedded ids. torch.export takes no LSTM of open length."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(48, 7)

    def forward(self, ids):
        states, (last, _) = self.layers(self.words(ids))
        return {"tags": self.head(states), "last": last[-1]}


class Detector(nn.Module):
    """As RetinaNet and FCOS: features of two sizes, a head of classes and boxes on each, boxes decoded on a grid, the best of them chosen."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(_Residual(3, 16), _Residual(16, 24))
        self.coarse, self.aside = _Residual(24, 24), nn.Conv2d(24, 24, 1)
        self.kinds, self.sides = nn.Conv2d(24, 3, 3, padding=1), nn.Conv2d(24, 4, 3, padding=1)

    def forward(self, image):
        fine = self.stem(image)
        coarse = self.coarse(fine)
        fine = self.aside(fine) + functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        found = [self._boxes(one, stride) for one, stride in ((fine, 4.0), (coarse, 8.0))]
        boxes, scores = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        best, kinds = scores.max(-1)
        best, places = best.topk(16, 1)
        return {
            "boxes": boxes.gather(1, places.unsqueeze(-1).expand(-1, -1, 4)),
            "scores": best,
            "classes": kinds.gather(1, places),
        }

    def _boxes(self, features, stride):
        """(boxes [N, places, 4] as corners, scores [N, places, classes])."""
        down, right = features.shape[2:]
        y, x = torch.meshgrid(torch.arange(down) + 0.5, torch.arange(right) + 0.5, indexing="ij")
        centers = torch.stack([x, y], -1).reshape(1, -1, 2) * stride
        sides = self.sides(features).flatten(2).transpose(1, 2).exp() * stride
        boxes = torch.cat([centers - sides[..., :2], centers + sides[..., 2:]], -1)
        return boxes, self.kinds(features).flatten(2).transpose(1, 2).sigmoid()


class UNet(nn.Module):
    """Two steps down and two up: one by a transposed convolution, one by a bilinear resize to the size of what is joined; group norms."""

    def __init__(self):
        super().__init__()

        def twice(taken, given):
            return nn.Sequential(
                nn.Conv2d(taken, given, 3, padding=1),
                nn.GroupNorm(4, given),
                nn.LeakyReLU(0.1),
                nn.Conv2d(given, given, 3, padding=1),
                nn.InstanceNorm2d(given, affine=True),
                nn.ReLU(),
            )

        self.first, self.second, self.bottom = twice(3, 8), twice(8, 16), twice(16, 32)
        self.up, self.after = nn.ConvTranspose2d(32, 16, 2, stride=2), twice(32, 16)
        self.last, self.head = twice(24, 8), nn.Conv2d(8, 2, 1)

    def forward(self, image):
        first = self.first(image)
        second = self.second(functional.max_pool2d(first, 2))
        bottom = self.bottom(functional.avg_pool2d(second, 2))
        x = self.after(torch.cat([self.up(bottom), second], 1))
        x = functional.interpolate(x, size=first.shape[2:], mode="bilinear", align_corners=False)
        return {"mask": self.head(self.last(torch.cat([x, first], 1))).softmax(1)}


def _made(kind, inputs, shapes):
    torch.manual_seed(0)
    module = kind().eval()
    # What training would leave in batch normalizations.
    for one in module.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.1)
            one.running_var.uniform_(0.5, 1.5)
    return module, inputs, shapes


def cnn():
    return _made(Cnn, {"image": torch.randn(2, 3, 32, 32)}, {"image": {0: _BATCH}})


def encoder():
    ids, mask = torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.int64)
    sizes = {0: _BATCH, 1: _LENGTH}
    return _made(Encoder, {"ids": ids, "mask": mask}, {"ids": sizes, "mask": sizes})


def lstm():
    return _made(Lstm, {"ids": torch.randint(0, 50, (2, 12))}, {"ids": {0: _BATCH}})


def open_lstm():
    """The same, of open length, which PyTorch refuses."""
    module, inputs, _ = lstm()
    return module, inputs, {"ids": {0: _BATCH, 1: _LENGTH}}


def detector():
    return _made(Detector, {"image": torch.randn(2, 3, 64, 64)}, {"image": {0: _BATCH}})


class _Suppressed(nn.Module):
    """The detector, for one picture, with the non-max suppression of torchvision."""

    def __init__(self):
        super().__init__()
        self.detector = Detector()

    def forward(self, image):
        from torchvision import ops

        found = {name: value[0] for name, value in self.detector(image).items()}
        kept = ops.batched_nms(found["boxes"], found["scores"], found["classes"], 0.5)
        return {name: value[kept] for name, value in found.items()}


def suppressed():
    return _made(_Suppressed, {"image": torch.randn(1, 3, 64, 64)}, {"image": None})


def unet():
    return _made(UNet, {"image": torch.randn(2, 3, 48, 48)}, {"image": {0: _BATCH}})
