"""Expressions over arrays of keys, evaluated by meshjit in the tests and by JAX to record what is expected.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 python tests/tools/key_scenarios.py      (where JAX is installed)

writes tests/goldens/key_scenarios.json: for each expression its value, of keys dtype, shape and words; or the kind of error.
"""

from __future__ import annotations

import copy
import json
import pickle
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

GOLDEN = Path(__file__).parents[1] / "goldens" / "key_scenarios.json"

SCENARIOS = r"""
repr(k)
str(k)
repr(ks[:2])
repr(k.dtype)
str(k.dtype)
k.dtype.name
k.dtype.itemsize
type(k).__name__
k.nbytes
k.itemsize
k.committed
ks.is_fully_addressable
ks.addressable_shards[0].data.shape
ks.at[0].set(ks[1])
ks.at[jnp.array([0,2])].get()
ks.at[0].add(ks[1])
ks.at[0].get()
ks.at[7].set(ks[1])
ks.at[7].get(mode='fill')
ks.at[jnp.array(7)].get()
ks[7]
ks[-1]
ks[jnp.array(7)]
ks[None].shape
ks[jnp.array([True]*3+[False]*3)].shape
k2[:,1]
k2[...,0]
k2.T.shape
k==k
k==random.clone(k)
ks==ks[0]
ks!=ks[0]
k==1
k==jnp.uint32(1)
k=='a'
k==None
k<k
k+1
k+k
-k
~k
abs(k)
hash(k)
bool(k)
int(k)
float(k)
np.asarray(k)
np.array(ks)
len(k)
len(ks)
list(ks)[0]
iter(k)
next(iter(k2)).shape
jnp.asarray(k)
jnp.array([k,k]).shape
jnp.asarray([k,k]).shape
jnp.array(ks, copy=True).shape
jnp.shape(ks)
jnp.ndim(ks)
jnp.size(ks)
jnp.result_type(ks)
jnp.result_type(ks, ks)
jnp.result_type(ks, 1)
jnp.zeros((3,), k.dtype)
jnp.ones((3,), k.dtype)
jnp.empty((3,), k.dtype)
jnp.full((3,), k)
jnp.full((3,), k, k.dtype).shape
jnp.full_like(ks, k).shape
jnp.zeros_like(ks)
jnp.empty_like(ks)
jnp.issubdtype(k.dtype, jax.dtypes.extended)
jnp.issubdtype(k.dtype, np.integer)
jnp.isscalar(k)
isinstance(k, jax.Array)
isinstance(k, jax.core.Tracer)
jax.jit(lambda k: isinstance(k, jax.Array))(k)
jax.jit(lambda k: jnp.array(isinstance(k, jax.core.Tracer)))(k)
tu.tree_leaves(k)[0] is k
tu.tree_structure(k)
tu.tree_map(lambda x: x.shape, {'a':ks})
tu.tree_all(tu.tree_map(lambda a,b: a.shape==b.shape, (ks,k), (ks,k)))
jax.tree.leaves_with_path({'a':k})[0][0]
jax.eval_shape(lambda k: random.split(k,3), k)
jax.eval_shape(lambda k: k, jax.ShapeDtypeStruct((4,), k.dtype))
jax.ShapeDtypeStruct((4,), k.dtype)
jax.jit(lambda k: k).lower(jax.ShapeDtypeStruct((4,), k.dtype)).compile()(random.split(k,4)).shape
jax.jit(lambda k: k).lower(ks).in_tree
jax.jit(lambda k: k).lower(ks).out_info
jax.device_put(ks).shape
jax.device_get(ks)
jax.block_until_ready(ks).shape
ks.block_until_ready().shape
jax.vmap(lambda k: random.uniform(k))(ks)
jax.vmap(lambda k: random.uniform(k))(k)
jax.vmap(lambda k: random.split(k))(ks).shape
jax.vmap(lambda k: random.split(k), out_axes=1)(ks).shape
jax.vmap(lambda k: random.split(k), out_axes=-1)(ks).shape
jax.vmap(lambda k: random.split(k), out_axes=2)(ks).shape
jax.vmap(lambda k: k.shape[0]*jnp.ones(()), in_axes=-1)(k2)
jax.vmap(lambda k: k, in_axes=1)(k2).shape
jax.vmap(lambda k: k, in_axes=2)(k2).shape
jax.vmap(lambda k, x: random.normal(k)+x, in_axes=(None,0))(k, jnp.arange(3.)).shape
jax.vmap(lambda i: random.fold_in(k,i))(jnp.arange(3))
lax.scan(lambda c,k: (c, random.uniform(k)), 0, ks)[1]
lax.scan(lambda c,k: (c, random.uniform(k)), 0, k)[1]
lax.scan(lambda c,_: (random.split(c)[0], c), k, None, length=3)[1].shape
lax.scan(lambda c,_: (random.key_data(c), c), k, None, length=3)[1].shape
lax.scan(lambda c,_: (random.split(c), c), k, None, length=3)[1].shape
lax.map(lambda k: random.uniform(k), ks)
lax.map(lambda k: random.split(k), ks, batch_size=4).shape
lax.cond(True, lambda k: random.split(k)[0], lambda k: k, k)
lax.cond(True, lambda k: random.key_data(k), lambda k: k, k)
lax.switch(1, [lambda k: k, lambda k: random.fold_in(k, 1)], k)
lax.while_loop(lambda c: c[0]<3, lambda c: (c[0]+1, random.split(c[1])[0]), (0,k))
lax.fori_loop(0,3,lambda i,k: random.fold_in(k,i), k)
lax.associative_scan(lambda a,b: b, ks).shape
jax.grad(lambda x,k: (x*random.normal(k,(3,))).sum())(jnp.ones(3), k)
jax.grad(lambda k: 1.)(k)
jax.grad(lambda k: 1., allow_int=True)(k)
jax.grad(lambda k: 1., allow_int=True)(ks).shape
jax.grad(lambda t: t[0]*random.normal(t[1]))((1.,k))
jax.grad(lambda t: t[0]*random.normal(t[1]), allow_int=True)((1.,k))
jax.grad(lambda x: (x*2.,k), has_aux=True)(1.)
jax.vjp(lambda x,k: x*random.normal(k), 1., k)[1](1.)
jax.vjp(lambda k: random.split(k), k)[1](np.zeros((2,),jax.dtypes.float0))
jax.vjp(lambda k: random.split(k), k)[0].shape
jax.jvp(lambda k: k, (k,), (np.zeros((),jax.dtypes.float0),))
jax.jvp(lambda k: random.split(k), (k,), (np.zeros((),jax.dtypes.float0),))
jax.jvp(lambda x,k: x*random.normal(k), (1.,k), (1.,np.zeros((),jax.dtypes.float0)))
jax.jvp(lambda x,k: x*random.normal(k), (1.,k), (1.,k))
jax.linearize(lambda x,k: x*random.normal(k), 1., k)[0]
jax.linearize(lambda x: x*random.normal(k), 1.)[1](2.)
jax.jacfwd(lambda x,k: x*random.normal(k))(1.,k)
jax.hessian(lambda x,k: x**2*random.normal(k))(1.,k)
jax.checkpoint(lambda x,k: x*random.normal(k))(1.,k)
jax.grad(jax.checkpoint(lambda x,k: x*random.normal(k)))(1.,k)
random.key_data(k)
random.key_data(ks).shape
random.key_data(random.key_data(ks)).shape
random.wrap_key_data(random.key_data(ks)).shape
random.wrap_key_data(jnp.zeros((3,4),jnp.uint32))
random.wrap_key_data(jnp.zeros((3,4),jnp.uint32), impl='rbg').shape
random.wrap_key_data(jnp.zeros((3,2),jnp.int32))
random.wrap_key_data(k)
random.wrap_key_data(np.zeros((2,),np.uint32))
random.wrap_key_data(jnp.zeros((2,),jnp.uint32), impl='nope')
random.key_impl(k)
repr(random.key_impl(k))
random.key_impl(random.key_data(k))
str(random.key_impl(random.key(0,impl='rbg')))
random.clone(k)
random.clone(random.key_data(k))
random.key(0, impl='threefry2x32').dtype
random.key(0, impl=random.key_impl(k)).dtype
random.key(0, impl='rbg')
random.key(0, impl='unsafe_rbg')
random.key(0, impl='nope')
random.key(k)
random.key(jnp.arange(3))
random.key(1.5)
random.split(ks)
random.fold_in(ks, 1)
random.normal(ks)
random.fold_in(k, 1)
random.fold_in(k, -1)
random.fold_in(k, 1.5)
random.split(k, (2,3)).shape
random.PRNGKey(3, impl='rbg')
random.uniform(random.PRNGKey(3, impl='rbg'))
random.uniform(random.key(3, impl='rbg'), (3,))
random.uniform(1)
random.uniform('a')
jax.jit(lambda k: random.split(k), donate_argnums=0)(random.key(3)).shape
jax.jit(lambda k: k, static_argnums=0)(k)
ks.copy()==ks
ks.on_device_size_in_bytes()
ks.addressable_data(0).shape
ks.global_shards[0].data.shape
ks.is_fully_replicated
ks.size
ks.take(jnp.array([1,2])).shape
ks.take(1).shape
ks.reshape(3,2).shape
ks.reshape((3,-1)).shape
ks.ravel().shape
ks.flatten().shape
ks[None].squeeze().shape
ks[None].squeeze(0).shape
k2.transpose().shape
k2.transpose(1,0).shape
k2.swapaxes(0,1).shape
ks.block_until_ready() is ks
random.split(k,3).delete()
jnp.dtype(k.dtype)
np.dtype(k.dtype)
k.dtype == random.key(0).dtype
k.dtype == random.key(0, impl='rbg').dtype
k.dtype == np.uint32
jnp.promote_types(k.dtype, k.dtype)
jnp.concatenate([ks, random.split(random.key(1, impl='rbg'))])
jnp.where(True, ks, 0)
jnp.concatenate([ks, jnp.zeros(3)])
lax.convert_element_type(k, 'uint32')
lax.with_sharding_constraint(ks, place('x'))
jax.device_put(random.split(k,8), place('x')).addressable_shards[1].data.shape
jax.device_put(random.split(k,8), place('x',None))
jax.shard_map(lambda k: jax.vmap(random.uniform)(k), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(random.split(k,8))
jax.shard_map(lambda k: k, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(random.split(k,8)).shape
jax.shard_map(lambda k: k, mesh=mesh, in_specs=P('x',None), out_specs=P('x'))(random.split(k,8)).shape
jax.shard_map(lambda k: random.uniform(k)[None], mesh=mesh, in_specs=P(), out_specs=P('x'))(k)
jax.shard_map(lambda k: random.uniform(random.fold_in(k, lax.axis_index('x')))[None], mesh=mesh, in_specs=P(), out_specs=P('x'))(k)
jax.shard_map(lambda k: lax.all_gather(k,'x'), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(random.split(k,8)).shape
jax.shard_map(lambda k: lax.ppermute(k,'x',[(0,1),(1,0)]), mesh=mesh, in_specs=P('x'), out_specs=P('x'))(random.split(k,8)).shape
jax.shard_map(lambda k: lax.psum(k,'x'), mesh=mesh, in_specs=P('x'), out_specs=P())(random.split(k,8)).shape
jax.pmap(random.uniform)(random.split(k,8)).shape
jax.pmap(lambda k: random.split(k))(random.split(k,8)).shape
jax.pure_callback(lambda k: 1, jax.ShapeDtypeStruct((), 'int32'), k)
jax.tree_util.tree_flatten(k)[1]
cvjp(2., k)
jax.grad(cvjp)(2., k)
cjvp(2., k)
jax.grad(cjvp)(2., k)
jax.lax.stop_gradient(k)
jax.lax.optimization_barrier(k)
jnp.array_equal(k,k)
jnp.array_equiv(k,k)
jnp.allclose(k,k)
np.shape(ks)
np.ndim(ks)
jnp.copy(ks).shape
lax.select(jnp.array(True), k, ks[0])
lax.select_n(jnp.array(0), k, ks[0])
lax.reshape(ks,(2,3)).shape
lax.broadcast(k,(3,)).shape
lax.broadcast_in_dim(k,(3,),()).shape
lax.concatenate([ks,ks],0).shape
lax.dynamic_slice(ks,(1,),(2,))
lax.dynamic_update_slice(ks,ks[:2],(3,))[3]==ks[0]
lax.dynamic_index_in_dim(ks,1).shape
lax.dynamic_update_index_in_dim(ks,k,1,0)[1]==k
lax.slice(ks,(1,),(3,)).shape
lax.slice_in_dim(ks,1,3).shape
lax.index_in_dim(ks,1,keepdims=False)==ks[1]
lax.transpose(k2,(1,0)).shape
lax.rev(ks,(0,))[0]==ks[5]
lax.squeeze(ks[None],(0,)).shape
lax.expand_dims(ks,(0,)).shape
lax.eq(k,k)
lax.ne(k,k)
lax.add(k,k)
lax.full((2,),k)
lax.full_like(ks,k)
lax.gather(ks,jnp.array([[1]]),lax.GatherDimensionNumbers((),(0,),(0,)),(1,))
lax.stop_gradient(ks).shape
lax.sort(ks)
lax.collapse(k2,0,2).shape
lax.bitcast_convert_type(k,jnp.uint32)
lax.broadcast_to_rank(k, 2).shape
lax.broadcast_shapes(ks.shape,())
jnp.concatenate([ks,ks])
jnp.stack([k,k])
jnp.vstack([ks,ks])
jnp.hstack([ks,ks])
jnp.dstack([ks,ks])
jnp.column_stack([ks,ks])
jnp.append(ks,ks)
jnp.block([ks,ks])
jnp.reshape(ks,(2,3))
jnp.ravel(k2)
jnp.squeeze(ks[None])
jnp.expand_dims(ks,0)
jnp.moveaxis(k2,0,1)
jnp.swapaxes(k2,0,1)
jnp.transpose(k2)
jnp.rollaxis(k2,1)
jnp.matrix_transpose(k2)
jnp.permute_dims(k2,(1,0))
jnp.flip(ks)
jnp.fliplr(k2)
jnp.flipud(k2)
jnp.rot90(k2)
jnp.roll(ks,1)
jnp.repeat(ks,2)
jnp.tile(ks,2)
jnp.broadcast_to(k,(3,))
jnp.broadcast_arrays(k,ks)
jnp.atleast_1d(k)
jnp.atleast_2d(k)
jnp.atleast_3d(k)
jnp.split(ks,2)
jnp.array_split(ks,4)
jnp.hsplit(ks,2)
jnp.vsplit(k2,2)
jnp.dsplit(k2[None],3)
jnp.unstack(ks)
jnp.take(ks,jnp.array([1,2]))
jnp.take_along_axis(ks,jnp.array([1,2]),0)
jnp.put_along_axis(ks,jnp.array([1]),k,0,inplace=False)
jnp.where(jnp.arange(6)>2,ks,ks[0])
jnp.select([jnp.arange(6)>2],[ks],k)
jnp.choose(jnp.array([0,1]),[ks[:2],ks[2:4]])
jnp.compress(jnp.array([True,False]),ks)
jnp.extract(jnp.array([True,False]),ks)
jnp.delete(ks,1)
jnp.insert(ks,1,k)
jnp.diagonal(k2)
jnp.diag(k2)
jnp.diagflat(k2)
jnp.pad(ks,1)
jnp.resize(ks,(2,4))
jnp.fill_diagonal(k2,k,inplace=False)
jnp.unique(ks)
jnp.sort(ks)
jnp.argsort(ks)
jnp.searchsorted(ks,k)
jnp.nonzero(ks)
jnp.argwhere(ks)
jnp.sum(ks)
jnp.max(ks)
jnp.mean(ks)
jnp.sin(k)
jnp.add(k,k)
jnp.equal(k,ks)
jnp.not_equal(k,ks)
jnp.less(k,k)
jnp.array_equal(ks,ks)
jnp.allclose(ks,ks)
jnp.isclose(ks,ks)
jnp.astype(ks,"uint32")
jnp.copy(ks)
jnp.tril(k2)
jnp.triu(k2)
jnp.meshgrid(ks,ks)
jnp.apply_along_axis(lambda x: x, 0, k2)
jnp.apply_over_axes(lambda x,a: x, k2, 0)
jnp.vectorize(random.uniform)(ks)
jnp.piecewise(ks,[jnp.arange(6)>2],[k,k])
jnp.full((2,),k)
jnp.full_like(ks,k)
jnp.zeros_like(ks)
jnp.size(ks)
jnp.ndim(ks)
jnp.shape(ks)
jnp.cumsum(ks)
jnp.dot(ks,ks)
jnp.matmul(ks,ks)
jnp.einsum("i->i",ks)
jnp.outer(ks,ks)
jnp.kron(ks,ks)
jnp.clip(ks,k,k)
jnp.minimum(k,k)
jnp.logical_not(k)
jnp.iscomplexobj(ks)
jnp.isreal(ks)
jnp.count_nonzero(ks)
jnp.argmax(ks)
jnp.any(ks)
jnp.all(ks)
jnp.bincount(ks)
jnp.ix_(ks)
jnp.interp(ks,ks,ks)
jnp.tri(k)
pickle.loads(pickle.dumps(ks))
copy.copy(ks)
copy.deepcopy(ks)
ks.is_deleted()
[random.split(k,3)][0].delete()
str(jax.typeof(ks))
str(k.aval)
spec(jax.device_put(random.split(k,8), place('x')))
spec(jax.jit(lambda k: k, in_shardings=place('x'))(random.split(k,8)))
spec(jax.jit(lambda k: lax.with_sharding_constraint(k, place('x')))(random.split(k,8)))
spec(jax.jit(lambda k: jnp.stack([k,k]), out_shardings=place(None,'x'))(random.split(k,8)))
jax.jit(lambda k: jnp.concatenate([k,k[:3]]).reshape(1,-1), in_shardings=place('x'))(random.split(k,8))
jax.device_put(random.split(k,8), place('x')).at[3].set(k)[2:5]
jax.device_put(random.split(k,8), place('x'))[5]
jax.jit(lambda k: jax.vmap(lambda q: random.normal(q,(2,)))(k), in_shardings=place('x'))(random.split(k,8))
jax.jit(jax.vmap(lambda k: lax.scan(lambda c,_: (random.split(c)[1], random.uniform(c)), k, None, length=2)))(ks)
jax.jit(lambda k: lax.while_loop(lambda c: random.uniform(c)<0.9, lambda c: random.split(c)[0], k))(k)
jax.vmap(lambda k: lax.while_loop(lambda c: random.uniform(c)<0.7, lambda c: random.split(c)[0], k))(ks)
jax.vmap(lambda k, p: lax.cond(p, lambda k: k, lambda k: random.split(k)[0], k))(ks, jnp.arange(6)%2==0)
jax.vmap(lambda k, i: ks.at[i].set(k))(ks[:2], jnp.array([3,4]))[:, 3]
jax.vmap(lambda k: jnp.stack([k,k]), out_axes=1)(ks)
jax.vmap(jax.vmap(lambda k: random.fold_in(k,1)))(k2)
jax.vmap(lambda k: jnp.where(random.uniform(k)<.5, k, random.split(k)[0]))(ks)
jax.tree.map(jnp.shape, {'a':k,'b':[ks]})
jax.tree.map(lambda *x: jnp.stack(x), (k,ks[0]), (k,ks[1]))
jax.tree.structure((k,1))==jax.tree.structure((0,1))
jax.tree.leaves([k,None,ks])[1] is ks
jax.jit(lambda t: jax.tree.map(lambda x: x[None], t))({'k':k,'x':1.})
jax.value_and_grad(lambda p: (p['w']*random.normal(p['k'],(2,))).sum(), allow_int=True)({'w':jnp.ones(2),'k':k})[1]['w']
jax.jacrev(lambda x,k: x*random.normal(k,(2,)))(jnp.ones(2),k)
jax.vjp(lambda x: (x*2,k), 1.)[1]((1.,np.zeros((),jax.dtypes.float0)))
jax.jvp(lambda x: (x*2,ks), (1.,), (1.,))[1][1].shape
lax.scan(lambda c,k: (c*random.normal(k),k), 1., ks)
jax.grad(lambda x: lax.scan(lambda c,k: (c*random.normal(k),k), x, ks)[0])(1.)
jax.grad(lambda x: jax.checkpoint(lambda x,k: (jnp.sin(x)*random.normal(k),k))(x,k)[0])(1.)
jax.vmap(cvjp)(jnp.arange(6.),ks)
jax.vmap(jax.grad(cvjp))(jnp.arange(6.),ks)
jax.vmap(cjvp)(jnp.arange(6.),ks)
jax.jvp(cjvp,(2.,k),(1.,np.zeros((),jax.dtypes.float0)))[0]
jax.shard_map(lambda k: (k, jax.vmap(random.uniform)(k)), mesh=mesh, in_specs=P(('x','y')), out_specs=P(('x','y')))(random.split(k,8))
jax.shard_map(lambda k: lax.scan(lambda c,q: (c, random.fold_in(q,lax.axis_index('x'))), 0, k)[1], mesh=mesh, in_specs=P('x'), out_specs=P('x'))(random.split(k,8))
jax.shard_map(lambda k: lax.all_to_all(k,'x',1,0,tiled=True), mesh=mesh, in_specs=P('x'), out_specs=P(None,'x'))(random.split(k,(4,4)))
jax.vmap(lambda k: lax.all_gather(k,'i'), axis_name='i')(ks[:2])
jax.vmap(lambda k: lax.ppermute(k,'i',[(0,1),(1,0)]), axis_name='i')(ks[:2])
jax.pmap(lambda k: random.fold_in(k,1))(random.split(k,8))
jax.pure_callback(lambda q: q, jax.ShapeDtypeStruct((2,), 'uint32'), random.key_data(k))
jnp.where(jnp.array([True,False]), ks[:2], k)
jnp.concatenate([ks[:1],k[None]])
jnp.concatenate([k2,k2],axis=-1)
jnp.concatenate([k2,k2],axis=2)
jnp.expand_dims(ks,-1)
jnp.stack([ks,ks],axis=-1)
jnp.moveaxis(k2,-1,0)
jnp.squeeze(ks[:1],-1)
jnp.take(k2,jnp.array([2,0]),axis=-1)
jnp.take(ks,jnp.array([1,9]))
jnp.take(ks,jnp.array([1,9]),mode='clip')
jnp.take(k2,1)
jnp.reshape(ks,(4,4))
jnp.broadcast_to(ks,(2,5))
jnp.zeros((0,),k.dtype)
random.split(k,0)
random.split(k,0).reshape(2,0)
jnp.concatenate([random.split(k,0),ks[:1]])
jnp.full((2,), ks)
jnp.full_like(ks, 1)
ks.at[0].set(1)
ks.at[1:3].set(k)
ks.at[jnp.array([True]*2+[False]*4)].set(k)
ks.at[10].get(mode='clip')
ks.at[10].set(k,mode='drop')
ks.at[::2].set(ks[:3])
k2.at[:,1].set(ks[:2])
k2.at[1].set(k)
k2[1,2]
k2[jnp.array([0,1]),jnp.array([2,0])]
k2[:,::-1]
k2[0,0,0]
ks['a']
ks[1.5]
ks[:,None]
ks+np.ones(6)
np.ones(6)*ks
jnp.ones(6)-ks
ks@ks
k**2
k in [ks[0],k]
ks==k2
(k==random.key(0,impl='rbg'))
jax.jit(lambda a,b: a==b)(ks,ks[2])
jnp.unstack(k2,axis=1)
lax.dynamic_slice_in_dim(ks,jnp.int32(2),2)
lax.dynamic_update_slice_in_dim(ks,ks[:2],4,0)
lax.scatter(ks,jnp.array([[1]]),ks[:1],lax.ScatterDimensionNumbers((0,),(),(0,)))
random.key(7,impl='rbg')
random.split(random.key(7,impl='rbg'),3)
random.split(random.key(7,impl='unsafe_rbg'),3)
random.split(random.key(7,impl='unsafe_rbg'),(2,2))
random.fold_in(random.key(7,impl='rbg'),5)
random.fold_in(random.key(7,impl='unsafe_rbg'),5)
random.split(random.key(7,impl='rbg'),8).reshape(2,4).T
jnp.stack([random.key(7,impl='rbg'),random.key(8,impl='rbg')])
random.bits(random.key(7,impl='rbg'),(5,))
random.bits(random.key(7,impl='rbg'),(2,8))
random.bits(random.key(7,impl='rbg'),(3,),'uint8')
random.bits(random.key(7,impl='rbg'),(6,),'uint16')
random.bits(random.key(7,impl='rbg'),(0,))
random.bits(random.key(7,impl='rbg'))
random.uniform(random.key(7,impl='rbg'),(2,3))
random.normal(random.key(7,impl='rbg'),(4,))
random.randint(random.key(7,impl='rbg'),(5,),0,100)
random.permutation(random.key(7,impl='rbg'),6)
random.bernoulli(random.key(7,impl='rbg'),.3,(4,))
random.categorical(random.key(7,impl='rbg'),jnp.zeros(3),shape=(4,))
random.choice(random.key(7,impl='rbg'),10,(3,))
random.gumbel(random.key(7,impl='rbg'),(3,))
random.truncated_normal(random.key(7,impl='rbg'),-1.,1.,(3,))
random.exponential(random.key(7,impl='rbg'),(3,))
jax.vmap(lambda k: random.bits(k,(3,)))(random.split(random.key(7,impl='rbg'),4))
jax.vmap(lambda k: random.split(k))(random.split(random.key(7,impl='rbg'),4))
jax.vmap(lambda k: random.fold_in(k,1))(random.split(random.key(7,impl='rbg'),4))
jax.vmap(lambda i: random.fold_in(random.key(7,impl='rbg'),i))(jnp.arange(3))
lax.map(lambda k: random.bits(k,(3,)),random.split(random.key(7,impl='rbg'),4))
jax.jit(lambda k: random.bits(k,(8,)), out_shardings=place('x'))(random.key(7,impl='rbg'))
jax.jit(lambda k: random.normal(k,(8,4)), out_shardings=place('x','y'))(random.key(7,impl='rbg'))
jax.jit(lambda k: random.bits(k,(8,3),'uint8'), out_shardings=place('x'))(random.key(7,impl='rbg'))
jax.jit(jax.vmap(random.uniform), in_shardings=place('x'))(random.split(random.key(7,impl='rbg'),8))
jax.vmap(lambda k: jax.vmap(random.bits)(random.split(k,2)))(random.split(random.key(7,impl='rbg'),2))
lax.scan(lambda c,_: (random.split(c)[0], random.bits(c)), random.key(7,impl='rbg'), None, length=3)
jax.grad(lambda x: x*random.normal(random.key(7,impl='rbg')))(1.)
jax.shard_map(lambda k: random.bits(random.fold_in(k,lax.axis_index('x')),(2,)), mesh=mesh, in_specs=P(), out_specs=P('x'))(random.key(7,impl='rbg'))
random.wrap_key_data(random.key_data(random.key(7,impl='rbg')),impl='rbg')
random.key_impl(random.key(7,impl='rbg'))
random.key(7,impl='rbg').dtype==random.key(1,impl='rbg').dtype
random.bits(random.key(7,impl='unsafe_rbg'),(5,))
random.bits(random.key(7,impl='unsafe_rbg'),(2,8))
random.bits(random.key(7,impl='unsafe_rbg'),(3,),'uint8')
random.bits(random.key(7,impl='unsafe_rbg'),(6,),'uint16')
random.bits(random.key(7,impl='unsafe_rbg'),(0,))
random.bits(random.key(7,impl='unsafe_rbg'))
random.uniform(random.key(7,impl='unsafe_rbg'),(2,3))
random.normal(random.key(7,impl='unsafe_rbg'),(4,))
random.randint(random.key(7,impl='unsafe_rbg'),(5,),0,100)
random.permutation(random.key(7,impl='unsafe_rbg'),6)
random.bernoulli(random.key(7,impl='unsafe_rbg'),.3,(4,))
random.categorical(random.key(7,impl='unsafe_rbg'),jnp.zeros(3),shape=(4,))
random.choice(random.key(7,impl='unsafe_rbg'),10,(3,))
random.gumbel(random.key(7,impl='unsafe_rbg'),(3,))
random.truncated_normal(random.key(7,impl='unsafe_rbg'),-1.,1.,(3,))
random.exponential(random.key(7,impl='unsafe_rbg'),(3,))
jax.vmap(lambda k: random.bits(k,(3,)))(random.split(random.key(7,impl='unsafe_rbg'),4))
jax.vmap(lambda k: random.split(k))(random.split(random.key(7,impl='unsafe_rbg'),4))
jax.vmap(lambda k: random.fold_in(k,1))(random.split(random.key(7,impl='unsafe_rbg'),4))
jax.vmap(lambda i: random.fold_in(random.key(7,impl='unsafe_rbg'),i))(jnp.arange(3))
lax.map(lambda k: random.bits(k,(3,)),random.split(random.key(7,impl='unsafe_rbg'),4))
jax.jit(lambda k: random.bits(k,(8,)), out_shardings=place('x'))(random.key(7,impl='unsafe_rbg'))
jax.jit(lambda k: random.normal(k,(8,4)), out_shardings=place('x','y'))(random.key(7,impl='unsafe_rbg'))
jax.jit(lambda k: random.bits(k,(8,3),'uint8'), out_shardings=place('x'))(random.key(7,impl='unsafe_rbg'))
jax.jit(jax.vmap(random.uniform), in_shardings=place('x'))(random.split(random.key(7,impl='unsafe_rbg'),8))
jax.vmap(lambda k: jax.vmap(random.bits)(random.split(k,2)))(random.split(random.key(7,impl='unsafe_rbg'),2))
lax.scan(lambda c,_: (random.split(c)[0], random.bits(c)), random.key(7,impl='unsafe_rbg'), None, length=3)
jax.grad(lambda x: x*random.normal(random.key(7,impl='unsafe_rbg')))(1.)
jax.shard_map(lambda k: random.bits(random.fold_in(k,lax.axis_index('x')),(2,)), mesh=mesh, in_specs=P(), out_specs=P('x'))(random.key(7,impl='unsafe_rbg'))
random.wrap_key_data(random.key_data(random.key(7,impl='unsafe_rbg')),impl='unsafe_rbg')
random.key_impl(random.key(7,impl='unsafe_rbg'))
random.key(7,impl='unsafe_rbg').dtype==random.key(1,impl='unsafe_rbg').dtype
x64(lambda: random.bits(random.key(7,impl='rbg'),(3,),'uint64'))
x64(lambda: random.normal(random.key(7,impl='rbg'),(3,),'float64'))
x64(lambda: random.bits(random.key(7,impl='rbg'),(2,2),'uint64'))
random.bits(random.wrap_key_data(jnp.array([1,2,0xffffffff,0xffffffff],jnp.uint32),impl='rbg'),(9,))
random.bits(random.wrap_key_data(jnp.array([0xffffffff,2,0xffffffff,0xffffffff],jnp.uint32),impl='rbg'),(9,))
random.bits(random.wrap_key_data(jnp.array([1,2,0xfffffffe,4],jnp.uint32),impl='rbg'),(4,4))
under('rbg', lambda: random.key(3))
under('rbg', lambda: random.PRNGKey(3))
under('rbg', lambda: random.uniform(random.PRNGKey(3),(2,)))
under('unsafe_rbg', lambda: random.split(random.PRNGKey(3)))
under('rbg', lambda: random.uniform(jnp.zeros(2,jnp.uint32)))
under('rbg', lambda: random.key_data(random.key(3,impl='threefry2x32')))
str(jax.typeof(eks))
types(lambda k:k,eks)
types(lambda k:k.reshape(4,2),eks)
types(lambda k:k[None],eks)
types(lambda k:jax.vmap(lambda q:random.split(q,3))(k),eks)
types(lambda k:reshard(k,P(('X','Y'))),eks)
types(lambda k:reshard(k,P('Y')),eks)
types(lambda k:jnp.stack([k,k]),eks)
jax.jit(lambda k: jnp.vectorize(random.uniform)(k))(k42)
jnp.vectorize(lambda k,x: random.normal(k)*x)(k8,2.)
jnp.vectorize(lambda k,x: random.normal(k)*x.sum(),signature='(),(n)->()')(k42,jnp.ones((2,3)))
jax.linear_transpose(lambda x: x*random.normal(k), 1.)(2.)
cv(k)
jax.vmap(cv)(k8)
jax.pmap(lambda k,x: random.normal(k)*x, in_axes=(0,None))(k8,2.)
jax.pmap(lambda k: k, in_axes=1, out_axes=1)(k42.T).shape
jax.jit(lambda d: {n: random.fold_in(v,i) for i,(n,v) in enumerate(d.items())})({'a':k,'b':k8[0]})['b']
jax.jit(lambda k,n: random.split(k,n), static_argnums=1)(k,3)
jax.jit(lambda k: lax.switch(random.randint(k,(),0,2), [lambda q: q, lambda q: random.fold_in(q,7)], k))(k)
jax.jit(lambda k: lax.map(lambda q: (q, random.uniform(q)), k))(k8)[0].shape
lax.map(lambda q: q, k8, batch_size=3)
jax.jit(lambda k: lax.scan(lambda c,q: (c+1,jnp.where(c%2==0,q,random.fold_in(q,c))),0,k,unroll=2))(k8)[1]
lax.scan(lambda c,q: (c,q),0,k8,reverse=True)[1]
lax.scan(lambda c,_: (c[1],c[0]),(k,k8[1]),None,length=3)
lax.scan(lambda c,_: ({'k':random.split(c['k'])[0]},None),{'k':k},length=2)[0]['k']
jax.grad(lambda p: lax.scan(lambda c,q: (c*p+random.normal(q),None),0.,k8)[0])(.5)
jax.grad(lambda p,k: lax.cond(p>0,lambda p,k:p*random.normal(k),lambda p,k:p,p,k))(1.,k)
jax.grad(lambda p: lax.while_loop(lambda c:c[0]<3,lambda c:(c[0]+1,random.split(c[1])[0]),(0,k))[0]*p)(2.)
jax.value_and_grad(lambda p: (p*random.normal(k),{'next':random.split(k)[0]}),has_aux=True)(1.)
jax.jit(jax.grad(lambda p,k: (p*random.normal(k,(2,))).sum(),argnums=(0,)))(jnp.ones(2),k)
jax.jit(lambda k: jax.vjp(lambda x,k: x*random.normal(k),1.,k)[1](1.)[0])(k)
jax.jacrev(lambda x: random.normal(k,(2,))*x)(1.)
jax.jvp(lambda x: (x,random.split(k)),(1.,),(1.,))[1][1].dtype==jax.dtypes.float0
jax.eval_shape(lambda s: {'k':random.split(s['k'],(2,3)),'x':s['x']+1},{'k':jax.ShapeDtypeStruct((),k.dtype),'x':jax.ShapeDtypeStruct((3,),'float32')})
jax.jit(lambda k:k[:3]).eval_shape(k8)
jax.tree.map(lambda a,b: a.shape, {'k':k8}, {'k':k8})
jnp.asarray(k8).shape
jax.block_until_ready({'k':k8})['k'] is ks
jax.device_get({'k':k8,'x':jnp.ones(1)})['k'].shape
[q.shape for q in k42]
{'a':k}=={'a':k}
random.choice(k,k8,(3,)).shape
random.bits(k,(2,)).dtype
random.split(key=k,num=3).shape
random.fold_in(key=k,data=np.uint8(3))
random.fold_in(k,jnp.int32(-1))
random.fold_in(k,2**32-1)
random.key(-1)
random.key(2**31)
random.key(np.int64(2**40+5))
random.key(True)
random.key(jnp.uint8(7))
random.key(jnp.int32(-5))
random.clone(k8)[0]
jax.jit(random.key)(5)
jax.vmap(random.key)(jnp.arange(3))
jax.vmap(lambda s: random.key(s,impl='rbg'))(jnp.arange(2))
jax.make_array_from_callback((8,),place('x'),lambda i: k8[i])
jax.lax.reduce_precision(k,8,7)
"""


def names(jax: Any, jnp: Any, placement: Any) -> dict[str, Any]:
    """What the expressions mention, of one of the two."""
    import numpy as np

    random, lax = jax.random, jax.lax
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(placement.AxisType.Auto,) * 2)
    k = random.key(0)
    ks = random.split(k, 6)

    @jax.custom_vjp
    def cvjp(x: Any, k: Any) -> Any:
        return x * random.normal(k)

    cvjp.defvjp(lambda x, k: (x * random.normal(k), k), lambda k, g: (g * 3.0, None))

    @jax.custom_jvp
    def cjvp(x: Any, k: Any) -> Any:
        return x * random.normal(k)

    @cjvp.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        assert tangents[1].dtype == jax.dtypes.float0 and tangents[1].shape == primals[1].shape
        return cjvp(*primals), tangents[0] * 5.0

    split = jax.custom_batching.custom_vmap(lambda k: random.split(k)[0])
    split.def_vmap(lambda size, batched, k: (jax.vmap(lambda q: random.split(q)[1])(k), True))
    explicit = jax.make_mesh((4, 2), ("X", "Y"), axis_types=(placement.AxisType.Explicit,) * 2)
    k8 = random.split(k, 8)

    def types(f: Any, *args: Any) -> str:
        """The type of what f gives under jit."""
        seen: list[str] = []

        def noted(*given: Any) -> Any:
            result = f(*given)
            seen.append(str(jax.typeof(result)))
            return result

        with jax.set_mesh(explicit):
            jax.jit(noted)(*args)
        return seen[0]

    return {
        "cv": split, "types": types, "reshard": placement.reshard, "k8": k8, "k42": k8.reshape(4, 2),
        "eks": jax.device_put(k8, placement.NamedSharding(explicit, placement.PartitionSpec("X"))), "jax": jax, "jnp": jnp, "np": np, "random": random, "lax": lax, "tu": jax.tree_util, "P": placement.PartitionSpec, "mesh": mesh,
        "place": lambda *spec: placement.NamedSharding(mesh, placement.PartitionSpec(*spec)), "k": k, "ks": ks,
        "k2": ks.reshape(2, 3), "cvjp": cvjp, "cjvp": cjvp, "pickle": pickle, "copy": copy,
        "spec": lambda x: str(tuple(x.sharding.spec)), "x64": lambda f: under(jax, "enable_x64", True, f),
        "under": lambda impl, f: under(jax, "default_prng_impl", impl, f),
    }  # fmt: skip


def under(jax: Any, name: str, value: Any, f: Any) -> Any:
    """f() while a setting has this value."""
    before = getattr(jax.config, name, None)
    before = getattr(jax.config, f"jax_{name}") if before is None else before
    jax.config.update(f"jax_{name}", value)
    try:
        return f()
    finally:
        jax.config.update(f"jax_{name}", before)


def text(jax: Any, jnp: Any, value: Any) -> str:
    """Dtype, shape and the first elements; of keys words. Floats to five digits."""
    import numpy as np

    if isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer):
        keys = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
        flat = np.asarray(jax.random.key_data(value) if keys else value).ravel().tolist()
        shown = [f"{x:.5g}" if isinstance(x, float) else str(x) for x in (*flat[:12], *flat[-4:])]
        return f"{value.dtype}{list(value.shape)} {' '.join(shown)}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(text(jax, jnp, x) for x in value)})"
    if isinstance(value, np.ndarray):
        return f"{'float0' if value.dtype == jax.dtypes.float0 else value.dtype}{list(value.shape)}"
    return repr(value)


def kind(error: Exception) -> str:
    kinds = ("ValueError", "TypeError", "RuntimeError", "NotImplementedError", "AttributeError", "IndexError", "OverflowError")
    names = [base.__name__ for base in type(error).__mro__]
    return f"raises {next((name for name in names if name in kinds), type(error).__name__)}"


def outcome(expression: str, scope: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return text(scope["jax"], scope["jnp"], eval(expression, scope))
        except Exception as error:
            return kind(error)


def expressions() -> list[str]:
    return list(dict.fromkeys(SCENARIOS.strip().splitlines()))


def record() -> None:
    import importlib

    modules: list[ModuleType] = [importlib.import_module(n) for n in ("jax", "jax.numpy", "jax.sharding")]
    scope = names(*modules)
    GOLDEN.write_text(json.dumps({e: outcome(e, scope) for e in expressions()}, indent=1) + "\n")


if __name__ == "__main__":
    record()
