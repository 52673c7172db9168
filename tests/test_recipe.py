"Recipes: the official sizes, and what follows from examples, lengths and other starts"
import pytest

from electra_nbdev.networks.recipe import for_examples, for_length, for_restart, preset, restarted, with_steps

# Table 6 of the paper and configure_pretraining.py, which share these
OFFICIAL = {'base': dict(max_seq_length=512, train_batch_size=256, learning_rate=2e-4, mask_prob=.15,
                         num_train_steps=766_000, num_warmup_steps=10_000, disc_weight=50., weight_decay_rate=.01),
            'large': dict(max_seq_length=512, train_batch_size=2048, learning_rate=2e-4, mask_prob=.25,
                          num_train_steps=400_000, num_warmup_steps=10_000, disc_weight=50., weight_decay_rate=.01)}

@pytest.mark.parametrize('name', OFFICIAL)
def test_a_preset_has_the_numbers_of_the_paper(name):
    hp = vars(preset(name))
    assert {k: hp[k] for k in OFFICIAL[name]}==OFFICIAL[name]

def test_debug_is_the_official_one():
    "configure_pretraining.py: eight sequences a batch, twenty steps, three layers of 144"
    hp = preset('small', debug=True)
    assert (hp.train_batch_size, hp.num_train_steps, hp.eval_batch_size, hp.num_eval_steps)==(8, 20, 4, 2)
    assert hp.model_hparam_overrides==dict(num_hidden_layers=3, hidden_size=144, num_attention_heads=4,
                                           intermediate_size=576)

def test_the_vocabulary_comes_from_the_examples_unless_the_user_set_it():
    values = vars(preset('small'))
    assert for_examples(values, dict(vocab_size=900, max_length=128))=={'vocab_size': 900}
    assert for_examples(values, dict(vocab_size=900, max_length=128), ['vocab_size'])=={}
    assert for_examples(values, dict(max_length=128))=={}

def test_a_schedule_that_was_switched_off_stays_off():
    "`tiny` has other lengths for other examples; without a schedule it has none"
    values = vars(preset('tiny', length_schedule=()))
    assert 'length_schedule' not in for_length(values, 64)
    assert 'length_schedule' in for_length(vars(preset('tiny')), 64)

@pytest.mark.parametrize('steps, warmup', [(1, 1), (5, 1), (20, 2), (300, 30)])
def test_a_new_start_warms_up_for_a_tenth(steps, warmup):
    assert for_restart(vars(preset('small')), steps)['num_warmup_steps']==warmup

@pytest.mark.parametrize('rule', [with_steps, restarted])
@pytest.mark.parametrize('size', ['tiny', 'small'])
def test_another_length_leaves_what_the_user_gave(rule, size):
    given = dict(num_warmup_steps=50, save_checkpoints_steps=100)
    hp = rule(preset(size, **given), 300, given)
    assert hp==preset(size, **given, num_train_steps=300)
