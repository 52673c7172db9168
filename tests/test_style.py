"The sheet of pictures: its colours stand out from the ground, and from each other for the colour-blind too"
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

# How others see linear RGB: Machado, Oliveira and Fernandes 2009, at full severity
EYES = dict(usual=np.eye(3),
            protanopia=[[.152286, 1.052583, -.204868], [.114503, .786281, .099216], [-.003882, -.048116, 1.051998]],
            deuteranopia=[[.367322, .860646, -.227968], [.280085, .672501, .047413], [-.011820, .042940, .968881]],
            tritanopia=[[1.255528, -.076749, -.178779], [-.078411, .930809, .147602], [.004733, .691367, .303900]])
XYZ = np.array([[.4124, .3576, .1805], [.2126, .7152, .0722], [.0193, .1192, .9505]])

@pytest.fixture
def style():
    with plt.style.context('electra_nbdev.electra'): yield plt.rcParams

def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c<=.04045, c/12.92, ((c+.055)/1.055)**2.4)

def contrast(a, b):
    "As in WCAG: 1 to 21"
    low, high = sorted(XYZ[1]@linear(o) for o in (a, b))
    return (high+.05)/(low+.05)

def lab(rgb):
    "CIELAB of linear RGB"
    x = XYZ@np.clip(rgb, 0, 1)/XYZ.sum(1)
    x, y, z = np.where(x>.008856, np.cbrt(x), 7.787*x+16/116)
    return np.array([116*y-16, 500*(x-y), 200*(y-z)])

def colours(style): return style['axes.prop_cycle'].by_key()['color']

def test_colours_stand_out_from_the_ground(style):
    assert style['figure.facecolor']==style['axes.facecolor'] and len(to_rgb(style['figure.facecolor']))==3
    assert all(contrast(o, style['figure.facecolor'])>=3 for o in colours(style))

@pytest.mark.parametrize('eye', EYES)
def test_colours_differ(style, eye):
    "A difference of 10 in CIELAB is seen at a glance"
    seen = [lab(EYES[eye]@linear(o)) for o in colours(style)]
    assert len(seen)==6 and min(np.linalg.norm(a-b) for a,b in combinations(seen, 2))>15

def test_text_is_legible_on_a_page(style):
    assert style['font.size']>=8 and style['legend.fontsize']==style['axes.titlesize']=='medium'
