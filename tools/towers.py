"Electric's towers alone: they learn every word of the text, without noise and without energies"
from electra_nbdev.method.electric import NoiseContrastiveEstimation
from electra_nbdev.method.objective import StepOutput

class TowersAlone(NoiseContrastiveEstimation):
    "Only the towers learn; a step computes no energies"
    columns = 'gen_loss', 'below_unigram'
    @property
    def weights(self): return dict(gen=1.)
    def counts(self, mb): return dict(gen=mb.candidates.sum())
    def step(self, mb):
        prediction = self.predict(mb)
        return StepOutput(logits=prediction.sampled, labels=mb.targets, sums=dict(gen=prediction.total),
                          prediction=prediction)
